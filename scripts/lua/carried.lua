-- carried: take out of the outbox what a relay has brought to its place.
--
-- moves    nothing
-- KEYS[1]  outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended` and `job`
-- KEYS[2]  stamps      hash    outbox entry -> when it was first given to a relay
-- ARGV[1+] entry       1 each  outbox entry id
-- returns  how many were still there
-- cost     O(entries); at most 500 a call

local outbox, stamps = KEYS[1], KEYS[2]
redis.call('HLEN', stamps)
if #ARGV == 0 or redis.call('XLEN', outbox) == 0 then
  return 0
end
local gone = redis.call('XDEL', outbox, unpack(ARGV))
redis.call('HDEL', stamps, unpack(ARGV))
return gone
