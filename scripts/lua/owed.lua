-- owed: what the outbox holds for other places, oldest first, for one relay at a time.
--
-- moves    nothing
-- KEYS[1]  outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended` and `job`
-- KEYS[2]  stamps      hash    outbox entry -> when it was first given to a relay
-- KEYS[3]  meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  relay       text    who asks
-- ARGV[3]  hold_ms     int     nobody else gets anything for that long
-- ARGV[4]  after       text    an outbox entry id, to go on behind it; '-' = from the start
-- ARGV[5]  limit       int     entries at most, 1..500
-- returns  {another relay is at it 0|1, more 0|1, then 3 each: entry id, first given at (ms), its fields}
-- cost     O(limit), and 1 MB, but one entry at least
--
-- Why one at a time: two relays would do no harm, since everything they carry has an id of its own, but all work twice.
-- Why the stamp: Redis remembers for seven days that a follow-up was sent. One that was first given out longer ago may
-- have been carried already without anybody knowing, so it is reported and not carried again.
-- Why HDEL of nothing comes first: it is a write that a server at its memory limit allows, and opens it for the rest.

local outbox, stamps, meta = KEYS[1], KEYS[2], KEYS[3]
local now, relay, hold, after, limit = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)
redis.call('HLEN', stamps)
if redis.call('XLEN', outbox) == 0 then return { 0, 0 } end
local held = redis.call('HMGET', meta, 'relay', 'relay_until')
local other = held[1] and held[1] ~= relay and tonumber(held[2] or 0)
if other and other > now and other <= now + hold then return { 1, 0 } end
redis.call('HDEL', stamps, '')
redis.call('HSET', meta, 'relay', relay, 'relay_until', string.format('%.0f', now + hold))

local reply, bytes, more = { 0, 0 }, 0, 0
for n = 1, limit + 1 do
  local found = redis.call('XRANGE', outbox, after == '-' and '-' or '(' .. after, '+', 'COUNT', 1)[1]
  if not found then break end
  local size = 0
  for _, word in ipairs(found[2]) do size = size + #word end
  if n > limit or (n > 1 and bytes + size > 1000000) then more = 1; break end
  bytes, after = bytes + size, found[1]
  redis.call('HSETNX', stamps, after, at)
  reply[#reply + 1], reply[#reply + 2] = after, redis.call('HGET', stamps, after)
  reply[#reply + 1] = found[2]
end
reply[2] = more
return reply
