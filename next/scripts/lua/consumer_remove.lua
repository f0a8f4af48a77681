-- consumer_remove: remove a consumer that is gone for good from the group, if it holds nothing.
--
-- MOVES  nothing
--
-- KEYS   stream      stream  group `delayq`
-- KEYS   meta        hash    consumers
--
-- ARGV   consumer    text
-- ARGV   idle_ms     int     leave it alone when it was active more recently; 0 = the consumer removes itself
--
-- RETURNS  1 = removed or not there, 0 = it holds entries or is not idle long enough
-- COST     O(consumers)

-- include: may_write

local has_stream = redis.call('EXISTS', stream) == 1
local rows = has_stream and redis.pcall('XINFO', 'CONSUMERS', stream, 'delayq') or {}
local known = redis.call('HGET', meta, 'consumers')
for _, row in ipairs(rows) do
  local info = {}
  for n = 1, #row, 2 do
    info[row[n]] = row[n + 1]
  end
  if info['name'] == consumer then
    if info['pending'] > 0 or info['idle'] < idle_ms then
      return 0
    end
    may_write(meta)
    redis.call('XGROUP', 'DELCONSUMER', stream, 'delayq', consumer)
  end
end

-- Its name leaves `meta` in the same step. A recorded consumer that is missing was deleted by hand, and then the
-- janitor delivers again what it may have held.
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
