-- renew: a worker is there and still holds these deliveries; start their leases anew.
--
-- moves    nothing
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  cancel      hash    id -> asked at
-- KEYS[4]  meta        hash
-- ARGV[1]  consumer    text    the name the worker reads under
-- ARGV[2+] delivery    2 each  id, entry id
-- returns  {lease_ms, entries Redis holds for this consumer, {ids no longer its own}, {ids asked to stop}}
-- cost     O(deliveries + consumers); at most 500 a call
--
-- Why FORCE: an operator's XGROUP DELCONSUMER drops the pending rows of a live worker. Only the owner gets this far,
-- so putting its row back cannot steal; without it the janitor would deliver running work a second time.
-- Why the count: when Redis holds more than the worker knows of, a reply with deliveries was lost on the way.
-- Why it records the consumer, and makes it: one recorded and missing later tells the janitor that its pending rows
-- were deleted with it (see unsettled). So a worker renews nothing once before it reads for the first time.
-- Why HDEL of nothing comes first: it is a write that a server at its memory limit allows, and opens it for the rest.

local entries, stream, cancel, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local consumer = ARGV[1]

local ids, mine, lost, asked = {}, {}, {}, {}
for i = 2, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local known = redis.call('HMGET', meta, 'lease_ms', 'consumers')
local stops, held = redis.call('HLEN', cancel) > 0, redis.call('XLEN', stream)
local owned = redis.call('HMGET', entries, '', unpack(ids))
for n, id in ipairs(ids) do
  if owned[n + 1] == ARGV[2 * n + 1] then
    mine[#mine + 1] = ARGV[2 * n + 1]
    if stops and redis.call('HEXISTS', cancel, id) == 1 then asked[#asked + 1] = id end
  else
    lost[#lost + 1] = id
  end
end
local pending, present = 0, false
for _, group in ipairs((held > 0 or redis.call('EXISTS', stream) == 1) and redis.call('XINFO', 'GROUPS', stream) or {}) do
  for i = 1, #group, 2 do present = present or (group[i] == 'name' and group[i + 1] == 'delayq') end
end
if present then
  redis.call('HDEL', meta, '')
  local list = ' ' .. (known[2] or '') .. ' '
  if string.match(consumer, '^dq:[^:]+:%d+:%w+$') and not string.find(list, ' ' .. consumer .. ' ', 1, true) then
    redis.call('XGROUP', 'CREATECONSUMER', stream, 'delayq', consumer)
    redis.call('HSET', meta, 'consumers', (known[2] and known[2] ~= '' and known[2] .. ' ' or '') .. consumer)
  end
  if #mine > 0 then
    local claim = { stream, 'delayq', consumer, 0 }
    for _, entry in ipairs(mine) do claim[#claim + 1] = entry end
    claim[#claim + 1], claim[#claim + 2] = 'FORCE', 'JUSTID'
    redis.call('XCLAIM', unpack(claim))
  end
  for _, holder in ipairs(redis.call('XPENDING', stream, 'delayq')[4] or {}) do
    if holder[1] == consumer then pending = tonumber(holder[2]) end
  end
end
local lease = known[1] and #known[1] <= 15 and string.match(known[1], '^%d+$')
return { tonumber(lease or 30000), pending, lost, asked }
