-- retire: take a consumer that is gone for good off the group's list, if it holds nothing.
--
-- moves    nothing
-- KEYS[1]  stream      stream  group `delayq`
-- KEYS[2]  meta        hash
-- ARGV[1]  consumer    text
-- ARGV[2]  idle_ms     int     leave it alone when it was active more recently; 0 = it says so itself
-- returns  1 = retired or not there, 0 = it holds entries or is not idle long enough
-- cost     O(consumers)
--
-- Why its name leaves `meta` in the same step: a recorded consumer that is missing means that somebody deleted it,
-- and then the janitor delivers again what it may have held.
-- Why HDEL of nothing comes first: it is a write that a server at its memory limit allows, and opens it for the rest.

local stream, meta = KEYS[1], KEYS[2]
local consumer, idle = ARGV[1], tonumber(ARGV[2])
local here = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1
local found = here and redis.pcall('XINFO', 'CONSUMERS', stream, 'delayq') or {}
local known = redis.call('HGET', meta, 'consumers')
for _, row in ipairs(found) do
  local is = {}
  for i = 1, #row, 2 do is[row[i]] = row[i + 1] end
  if is.name == consumer then
    if is.pending > 0 or is.idle < idle then return 0 end
    redis.call('HDEL', meta, '')
    redis.call('XGROUP', 'DELCONSUMER', stream, 'delayq', consumer)
  end
end
local kept = {}
for name in string.gmatch(known or '', '%S+') do
  if name ~= consumer then kept[#kept + 1] = name end
end
if #kept == 0 then redis.call('HDEL', meta, 'consumers') else redis.call('HSET', meta, 'consumers', table.concat(kept, ' ')) end
return 1
