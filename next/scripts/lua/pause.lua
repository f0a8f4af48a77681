-- pause: Pause a queue, or resume it. In a paused queue, no job becomes ready when it is due, and delayq's workers
-- fetch no jobs.
--
-- MOVES  nothing
--
-- KEYS   meta        hash    fields paused_until_ms, schema, lease_ms
--
-- ARGV   now         clock   epoch ms, for tests; '' = server clock
-- ARGV   queue       text    name of the queue, for the wake-up
-- ARGV   wake        text    pub/sub channel that wakes movers, so that they learn the new end of the pause
-- ARGV   for_ms      int     length of the pause in ms; 0 = until the queue is resumed; -1 = resume now
-- ARGV   lease_ms    int     lease in ms, stored if the queue is new
--
-- RETURNS  The end of the pause, epoch ms; 0 = until the queue is resumed; -1 = not paused
-- COST     O(1)
--
-- Jobs that are running continue. `hand_back` and `reclaim` still append to the stream of a paused queue.

-- include: wake_mover
-- include: may_write

if for_ms < 0 then
  redis.call('HDEL', meta, 'paused_until_ms')
  wake_mover(wake, queue, now)
  return -1
end

may_write(meta)
local paused_until = for_ms == 0 and 0 or now + for_ms
redis.call('HSET', meta, 'paused_until_ms', string.format('%.0f', paused_until))
if redis.call('HSETNX', meta, 'schema', '1') == 1 then
  redis.call('HSET', meta, 'lease_ms', lease_ms)
end
if for_ms > 0 then
  wake_mover(wake, queue, paused_until)
end
return paused_until
