-- line_up: a job that found a limit full has been put back; let it wait for a place, unless there is one by now.
--
-- moves    nothing
-- KEYS[1]  holders   zset  'queue id entry' -> since when it holds a place of this key
-- KEYS[2]  waiting   zset  'queue id' -> since when it waits for one
-- KEYS[3]  places    zset  key -> how many places it has
-- ARGV[1]  now_ms    int   '' = the server's clock
-- ARGV[2]  key       text  whose places these are
-- ARGV[3]  limit     int   how many there are
-- ARGV[4]  waiter    text  queue and id
-- ARGV[5]  most      int   how many may wait here; others come back by themselves only
-- returns  1 when there is a place: run it now; 0 when it waits
-- cost     O(log n)
--
-- Why not before the job was put back: who gives back a place runs the first of the list at once, and a job that
-- still runs cannot be run. So a place that becomes free before this call is seen by it, and whoever gives one back
-- later sees the job.

local holders, waiting, places = KEYS[1], KEYS[2], KEYS[3]
local now, key, limit, waiter, most = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if not (limit and most) then return redis.error_reply('ERR limit and most are numbers') end
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
