-- place_acquire: Take a place of a concurrency limit for a job that is about to run.
--
-- MOVES  nothing
--
-- KEYS   holders   zset    `<queue> <job id>` -> time at which the place expires, epoch ms
-- KEYS   places    zset    key of the limit -> last time at which one of its places expires, epoch ms
-- KEYS   counters  hash    granted, refused: numbers of granted places and refused calls since the limit was first used
--
-- ARGV   now        clock  epoch ms, for tests; '' = server clock
-- ARGV   limit      int    number of jobs that may have a place at the same time
-- ARGV   holder     text   `<queue> <job id>` of the job
-- ARGV   key        text   key of the limit; the name of `holders` ends with the same text; '' = no key
-- ARGV   expire_ms  int    how long the job has the place, unless `place_release` frees it before
--
-- RETURNS  A list of two numbers:
--            1 expires_ms  the job has a place until expires_ms
--            0 held        nothing changed, except for a counter: `held` jobs have all places
-- COST     O(log(places)), and O(1) for each place that has expired
--
-- A job may already have a place, because the worker of its earlier attempt has died or the reply to its earlier call
-- was lost. The job then keeps this place with a new expiry time, and the call is not counted as granted again. A full
-- server refuses the script, so that no job runs without a place.

-- 1. Look for a place.

local held = redis.call('ZCOUNT', holders, string.format('(%.0f', now), '+inf')
local own = tonumber(redis.call('ZSCORE', holders, holder) or 0)
local has_place = own > now
if not has_place and held >= limit then
  redis.call('HINCRBY', counters, 'refused', 1)
  return { 0, held }
end

-- 2. Take the place. ZADD comes first, because a full server refuses the script at ZADD, before anything has changed.
-- Then remove expired places, and set the expiry times of both keys.

local expires = now + expire_ms
redis.call('ZADD', holders, string.format('%.0f', expires), holder)
redis.call('ZREMRANGEBYSCORE', holders, '-inf', string.format('%.0f', now))
redis.call('ZREMRANGEBYSCORE', places, '-inf', string.format('%.0f', now))
local last = redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2]
redis.call('ZADD', places, last, key)
redis.call('PEXPIRE', holders, string.format('%.0f', last - now))
last = redis.call('ZRANGE', places, -1, -1, 'WITHSCORES')[2]
redis.call('PEXPIRE', places, string.format('%.0f', last - now))
if not has_place then
  redis.call('HINCRBY', counters, 'granted', 1)
end
return { 1, expires }
