-- clear: take everything that waits out of one of Laravel's queues.
--
-- moves    ready -> absent, scheduled -> absent
-- KEYS[1]  list        list    payloads, the oldest first
-- KEYS[2]  delayed     zset    payload -> due, epoch seconds
-- KEYS[3]  notify      list    one token for each payload in the list
-- returns  how many jobs were taken out
-- cost     O(1); the memory is freed in the background
--
-- Reserved jobs stay, because they run. Laravel's own queue:clear takes them too.

local list, delayed, notify = KEYS[1], KEYS[2], KEYS[3]
redis.call('LLEN', notify)
local gone = redis.call('LLEN', list) + redis.call('ZCARD', delayed)
redis.call('UNLINK', list, delayed, notify)
return gone
