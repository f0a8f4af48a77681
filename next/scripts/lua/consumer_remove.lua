-- consumer_remove: Remove a consumer from the group, unless it has pending entries or was active a short time ago.
--
-- MOVES  nothing
--
-- KEYS   stream      stream  entries of ready and reserved jobs; consumer group `delayq`
-- KEYS   meta        hash    field consumers
--
-- ARGV   consumer    text    name of the consumer
-- ARGV   idle_ms     int     keep the consumer if it was active in the last idle_ms milliseconds; 0 = do not check, for
--                            a consumer that removes itself
--
-- RETURNS  1 = removed, or not in the group; 0 = kept
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

-- Remove the name from `meta` too. If a consumer in `meta` is missing in the group, the janitor concludes that somebody
-- deleted the consumer by hand, and delivers the jobs of this consumer again.
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
