-- outbox_read: Return job-end records from the outbox, oldest first, to one relay at a time.
--
-- MOVES  nothing
--
-- KEYS   outbox      stream  job-end records for the relay
-- KEYS   meta        hash    fields relay, relay_until
--
-- ARGV   now         clock   epoch ms, for tests; '' = server clock
-- ARGV   relay       text    name of the calling relay
-- ARGV   hold_ms     int     time after this call, in ms, in which other relays receive no records
-- ARGV   after       text    id of the record after which to continue; '-' = from the start
-- ARGV   limit       int     maximum number of records, 1..500
--
-- RETURNS  One flat list: is_held, more, then id and fields for each record.
--            is_held  1 = another relay has the outbox, and no records are returned; else 0
--            more     1 = there are more records after these; else 0
--            id       stream entry id of the record, for outbox_ack
--            fields   flat list of names and values: ended (done, failed or cancelled), job (envelope JSON), and
--                     perhaps failure (JSON)
-- COST     O(limit + bytes); returns up to 1 MB, but at least one record
--
-- Each record stays in the outbox until outbox_ack deletes it. Two relays at once would send every follow-up job twice.
-- This would do no harm, because relays of delayq send a follow-up job with the same token each time, so that
-- `schedule` stores the job once.

-- include: may_write

local max_bytes = 1000000
if redis.call('XLEN', outbox) == 0 then
  return { 0, 0 }
end

-- If another relay has the outbox, return no records. If the time of that relay ends more than hold_ms from now, it was
-- set before the clock went back, and does not count.
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
