-- outbox_read: give one relay at a time the ends of jobs that the outbox holds, oldest first.
--
-- MOVES  nothing
--
-- KEYS   outbox      stream  ends of jobs, for the relay
-- KEYS   meta        hash    relay, relay_until
--
-- ARGV   now         clock
-- ARGV   relay       text    the name of the relay that asks
-- ARGV   hold_ms     int     no other relay gets anything for that long
-- ARGV   after       text    an outbox entry id, to go on behind it; '-' = from the start
-- ARGV   limit       int     entries at most, 1..500
--
-- RETURNS  {another relay is at it 0|1, more 0|1, then for each: entry id, its fields}
-- COST     O(limit), and 1 MB, but one entry at least
--
-- Two relays would do no harm, since everything they send has an id of its own, but send all of it twice.

-- include: may_write

local max_bytes = 1000000
if redis.call('XLEN', outbox) == 0 then
  return { 0, 0 }
end

-- Another relay keeps its hold until it is over; a hold that lies too far ahead was set before the clock went back.
local held = redis.call('HMGET', meta, 'relay', 'relay_until')
local other_until = held[1] and held[1] ~= relay and tonumber(held[2] or 0)
if other_until and other_until > now and other_until <= now + hold_ms then
  return { 1, 0 }
end
may_write(meta)
redis.call('HSET', meta, 'relay', relay, 'relay_until', string.format('%.0f', now + hold_ms))

local reply = { 0, 0 }
local bytes = 0
for n = 1, limit + 1 do
  local from = after == '-' and '-' or '(' .. after
  local found = redis.call('XRANGE', outbox, from, '+', 'COUNT', 1)[1]
  if not found then
    break
  end
  local size = 0
  for _, word in ipairs(found[2]) do
    size = size + #word
  end
  if n > limit or (n > 1 and bytes + size > max_bytes) then
    reply[2] = 1
    break
  end
  bytes = bytes + size
  after = found[1]
  reply[#reply + 1] = after
  reply[#reply + 1] = found[2]
end
return reply
