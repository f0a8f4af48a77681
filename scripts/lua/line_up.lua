-- line_up: let a job that found a limit full wait for a place, unless one is free by now. The job was put back before.
--
-- moves    nothing
-- KEYS[1]  holders   zset  'queue id entry' -> since when it holds a place of this key
-- KEYS[2]  waiting   zset  'queue id' -> since when it waits for one
-- KEYS[3]  places    zset  key -> how many places it has
-- ARGV[1]  now_ms    int   '' = the server's clock
-- ARGV[2]  key       text  the key of the limit
-- ARGV[3]  limit     int   how many places the key has
-- ARGV[4]  waiter    text  queue and id
-- ARGV[5]  most      int   how many jobs may wait here; others only come back by themselves
-- returns  1 when there is a place: run it now; 0 when it waits
-- cost     O(log n)
--
-- Whoever gives a place back runs the first of the list at once, and a job that still runs cannot be run again. So the
-- job is put back first. A place that becomes free before this call is seen by it; one that becomes free later finds
-- the job.

local holders, waiting, places = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
local key = ARGV[2]
local limit = tonumber(ARGV[3])
local waiter = ARGV[4]
local most = tonumber(ARGV[5])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if not (limit and most) then
  return redis.error_reply('ERR limit and most are numbers')
end
redis.call('ZCARD', places)

if redis.call('ZCARD', holders) < limit then
  redis.call('ZREM', waiting, waiter)
  return 1
end
if redis.call('ZCARD', waiting) < most then
  redis.call('ZADD', waiting, 'NX', string.format('%.0f', now), waiter)
  redis.call('ZADD', places, ARGV[3], key)
end
return 0
