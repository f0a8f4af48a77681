-- owed: give one relay at a time what the outbox holds for other queues, oldest first.
--
-- moves    nothing
-- KEYS[1]  outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended` and `job`
-- KEYS[2]  stamps      hash    outbox entry -> when it was first given to a relay
-- KEYS[3]  meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  relay       text    the name of the relay that asks
-- ARGV[3]  hold_ms     int     no other relay gets anything for that long
-- ARGV[4]  after       text    an outbox entry id, to go on behind it; '-' = from the start
-- ARGV[5]  limit       int     entries at most, 1..500
-- returns  {another relay is at it 0|1, more 0|1, then 3 each: entry id, first given at (ms), its fields}
-- cost     O(limit), and 1 MB, but one entry at least
--
-- Two relays would do no harm, since everything they carry has an id of its own, but all of it twice.

local outbox, stamps, meta = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
local relay = ARGV[2]
local hold = tonumber(ARGV[3])
local after = ARGV[4]
local limit = tonumber(ARGV[5])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)
redis.call('HLEN', stamps)
if redis.call('XLEN', outbox) == 0 then
  return { 0, 0 }
end

-- Another relay keeps its hold until it is over; a hold that lies too far ahead was set before the clock went back.
local held = redis.call('HMGET', meta, 'relay', 'relay_until')
local other_until = held[1] and held[1] ~= relay and tonumber(held[2] or 0)
if other_until and other_until > now and other_until <= now + hold then
  return { 1, 0 }
end
-- HDEL of nothing frees memory for Redis: a server at its memory limit allows it, and then runs the rest of the script.
redis.call('HDEL', stamps, '')
redis.call('HSET', meta, 'relay', relay, 'relay_until', string.format('%.0f', now + hold))

local reply = { 0, 0 }
local bytes = 0
local more = 0
for n = 1, limit + 1 do
  local found = redis.call('XRANGE', outbox, after == '-' and '-' or '(' .. after, '+', 'COUNT', 1)[1]
  if not found then
    break
  end
  local size = 0
  for _, word in ipairs(found[2]) do
    size = size + #word
  end
  if n > limit or (n > 1 and bytes + size > 1000000) then
    more = 1
    break
  end
  bytes = bytes + size
  after = found[1]
  -- Redis remembers for seven days that a follow-up was sent. One that was first given out longer ago may have been
  -- carried already; the stamp lets the relay report it instead of carrying it again.
  redis.call('HSETNX', stamps, after, at)
  reply[#reply + 1] = after
  reply[#reply + 1] = redis.call('HGET', stamps, after)
  reply[#reply + 1] = found[2]
end
reply[2] = more
return reply
