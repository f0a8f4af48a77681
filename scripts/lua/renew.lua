-- renew: start the leases of these deliveries anew, because their worker is alive and holds them.
--
-- moves    nothing
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  cancel      hash    id -> asked at
-- KEYS[4]  meta        hash
-- ARGV[1]  consumer    text    the name the worker reads under
-- ARGV[2+] delivery    2 each  id, entry id
-- returns  {lease_ms, entries Redis holds for this consumer, {ids no longer its own}, {ids asked to stop}}. More
--          entries than the worker knows mean that a reply with deliveries was lost
-- cost     O(deliveries + consumers); at most 500 a call

local entries, stream, cancel, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local consumer = ARGV[1]

local ids = {}
for i = 2, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
local known = redis.call('HMGET', meta, 'lease_ms', 'consumers')
local consumers = known[2] or ''
local has_wishes = redis.call('HLEN', cancel) > 0
local held = redis.call('XLEN', stream)
local owned = redis.call('HMGET', entries, '', unpack(ids)) -- '': HMGET needs one field at least
local renewed = {}
local fenced = {}
local asked = {}
for n, id in ipairs(ids) do
  if owned[n + 1] == ARGV[2 * n + 1] then
    renewed[#renewed + 1] = ARGV[2 * n + 1]
    if has_wishes and redis.call('HEXISTS', cancel, id) == 1 then
      asked[#asked + 1] = id
    end
  else
    fenced[#fenced + 1] = id
  end
end

local has_stream = held > 0 or redis.call('EXISTS', stream) == 1
local has_group = false
for _, group in ipairs(has_stream and redis.call('XINFO', 'GROUPS', stream) or {}) do
  for i = 1, #group, 2 do
    has_group = has_group or (group[i] == 'name' and group[i + 1] == 'delayq')
  end
end
local pending = 0
if has_group then
  -- HDEL of nothing frees memory for Redis: a server at its memory limit allows it, and then runs the rest of the
  -- script.
  redis.call('HDEL', meta, '')
  -- The consumer is recorded, and created. When a recorded consumer is missing later, the janitor knows that its
  -- pending rows were deleted with it (see unsettled). So a worker renews nothing once, before it reads for the first
  -- time.
  local is_ours = string.match(consumer, '^dq:[^:]+:%d+:%w+$')
  if is_ours and not string.find(' ' .. consumers .. ' ', ' ' .. consumer .. ' ', 1, true) then
    redis.call('XGROUP', 'CREATECONSUMER', stream, 'delayq', consumer)
    redis.call('HSET', meta, 'consumers', (consumers ~= '' and consumers .. ' ' or '') .. consumer)
  end
  if #renewed > 0 then
    local claim = { stream, 'delayq', consumer, 0 }
    for _, entry in ipairs(renewed) do
      claim[#claim + 1] = entry
    end
    -- FORCE brings back a pending row that an operator's XGROUP DELCONSUMER dropped; without it the janitor would
    -- deliver running work a second time. It cannot steal: only the owner of an entry gets this far.
    claim[#claim + 1] = 'FORCE'
    claim[#claim + 1] = 'JUSTID'
    redis.call('XCLAIM', unpack(claim))
  end
  for _, holder in ipairs(redis.call('XPENDING', stream, 'delayq')[4] or {}) do
    if holder[1] == consumer then
      pending = tonumber(holder[2])
    end
  end
end
local lease = known[1] and #known[1] <= 15 and string.match(known[1], '^%d+$')
return { tonumber(lease or 30000), pending, fenced, asked }
