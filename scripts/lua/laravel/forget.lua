-- forget: take reserved jobs out of one of Laravel's queues, because the work is done.
--
-- moves    reserved -> absent
-- KEYS[1]  reserved    zset    payload, its attempt counted -> when it is let in again, epoch seconds
-- KEYS[2]  held        hash    token -> first and last digit of the count in the reserved payload, and that payload
-- ARGV[1+] token       1 each  as reserve gave it
-- returns  1 or 0 for each: gone, or fenced because it was let in again meanwhile
-- cost     O(log n) each; at most 500 a call
--
-- In Laravel a reservation is its payload. Here it is a token: the process that keeps the lease need not know the
-- payload, and a token never comes back.

local reserved, held = KEYS[1], KEYS[2]
redis.call('ZCARD', reserved)
local reply = {}
for n, token in ipairs(ARGV) do
  local row = redis.call('HGET', held, token)
  reply[n] = 0
  if row then
    local _, prefix_end = row:find('^%d+ %d+ ')
    reply[n] = redis.call('ZREM', reserved, row:sub(prefix_end + 1))
  end
  redis.call('HDEL', held, token)
end
return reply
