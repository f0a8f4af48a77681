-- pause: stop promotion, direct append and fetching of a queue, for a time or until it is resumed; or resume it.
--
-- MOVES  nothing
--
-- KEYS   meta        hash    paused_until_ms, schema, lease_ms
--
-- ARGV   now         clock
-- ARGV   queue       text    its name, for the wake-up
-- ARGV   wake        text    channel of the wake-up, for movers
-- ARGV   for_ms      int     how long; 0 = until resumed; -1 = resume
-- ARGV   lease_ms    int     lease of a queue that is seen for the first time
-- ARGV   switch      text    channel of the hint, for workers
--
-- RETURNS  paused_until_ms: 0 = until resumed, -1 = not paused
-- COST     O(1)

-- include: wake_mover
-- include: may_write

-- A hint that cannot be sent is no error: workers look now and then.
local function tell_workers()
  redis.pcall('PUBLISH', switch, queue)
end

if for_ms < 0 then
  redis.call('HDEL', meta, 'paused_until_ms')
  wake_mover(wake, queue, now)
  tell_workers()
  return -1
end

may_write(meta)
local paused_until = for_ms == 0 and 0 or now + for_ms
redis.call('HSET', meta, 'paused_until_ms', string.format('%.0f', paused_until))
if redis.call('HSETNX', meta, 'schema', '1') == 1 then
  redis.call('HSET', meta, 'lease_ms', lease_ms)
end
tell_workers()
return paused_until
