-- vacate: give back a place of a limit, and learn which job waits for it.
--
-- moves    nothing
-- KEYS[1]  holders   zset  'queue id entry' -> since when it holds a place of this key
-- KEYS[2]  waiting   zset  'queue id' -> since when it waits for one
-- KEYS[3]  places    zset  key -> how many places it has
-- ARGV[1]  key       text  the key of the limit
-- ARGV[2]  limit     int   how many places the key has
-- ARGV[3]  holder    text  queue, id and entry id, blanks between; '' = no holder leaves, but a woken job did not come
-- returns  {1 or 0: whether it held one, the job that has waited longest and is to be woken, or ''}
-- cost     O(log n)
--
-- A job that is woken leaves the list, so that two places do not wake the same job. A wake-up that gets lost costs time
-- only: a waiting job comes back by itself too.

local holders, waiting, places = KEYS[1], KEYS[2], KEYS[3]
local key = ARGV[1]
local limit = tonumber(ARGV[2])
local holder = ARGV[3]
if not limit then
  return redis.error_reply('ERR a limit is a number')
end
redis.call('ZCARD', waiting)
redis.call('ZCARD', places)

local left = redis.call('ZREM', holders, holder)
local held = redis.call('ZCARD', holders)
local woken = nil
-- A place that was not held wakes no job: the call that took it from its holder has passed it on.
if held < limit and (left == 1 or holder == '') then
  woken = redis.call('ZPOPMIN', waiting)[1]
end
if held == 0 and redis.call('ZCARD', waiting) == 0 then
  redis.call('ZREM', places, key)
end
return { left, woken or '' }
