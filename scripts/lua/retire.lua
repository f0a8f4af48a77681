-- retire: remove a consumer that is gone for good from the group, if it holds nothing.
--
-- moves    nothing
-- KEYS[1]  stream      stream  group `delayq`
-- KEYS[2]  meta        hash
-- ARGV[1]  consumer    text
-- ARGV[2]  idle_ms     int     leave it alone when it was active more recently; 0 = the consumer retires itself
-- returns  1 = retired or not there, 0 = it holds entries or is not idle long enough
-- cost     O(consumers)

local stream, meta = KEYS[1], KEYS[2]
local consumer = ARGV[1]
local idle = tonumber(ARGV[2])
local has_stream = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1
local rows = has_stream and redis.pcall('XINFO', 'CONSUMERS', stream, 'delayq') or {}
local known = redis.call('HGET', meta, 'consumers')
for _, row in ipairs(rows) do
  local info = {}
  for i = 1, #row, 2 do
    info[row[i]] = row[i + 1]
  end
  if info.name == consumer then
    if info.pending > 0 or info.idle < idle then
      return 0
    end
    -- HDEL of nothing frees memory for Redis: a server at its memory limit allows it, and then runs the rest.
    redis.call('HDEL', meta, '')
    redis.call('XGROUP', 'DELCONSUMER', stream, 'delayq', consumer)
  end
end

-- Its name leaves `meta` in the same step. A recorded consumer that is missing means that it was deleted by hand, and
-- then the janitor delivers again what it may have held.
local kept = {}
for name in string.gmatch(known or '', '%S+') do
  if name ~= consumer then
    kept[#kept + 1] = name
  end
end
if #kept == 0 then
  redis.call('HDEL', meta, 'consumers')
else
  redis.call('HSET', meta, 'consumers', table.concat(kept, ' '))
end
return 1
