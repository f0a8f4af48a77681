-- carried: what the outbox held is where it belongs; take it out.
--
-- moves    nothing
-- KEYS[1]  outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended` and `job`
-- KEYS[2]  stamps      hash    outbox entry -> when it was first given to a relay
-- ARGV[1+] entry       1 each  outbox entry id
-- returns  how many were still there
-- cost     O(entries); at most 500 a call

redis.call('HLEN', KEYS[2])
redis.call('XLEN', KEYS[1])
local gone = redis.call('XDEL', KEYS[1], unpack(ARGV))
redis.call('HDEL', KEYS[2], unpack(ARGV))
return gone
