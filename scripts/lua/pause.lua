-- pause: stop promotion, direct append and fetching of a queue, for a time or until it is resumed; or resume it.
--
-- moves    nothing
-- KEYS[1]  meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  queue       text    its name, for the wake-up
-- ARGV[3]  wake        text    channel
-- ARGV[4]  for_ms      int     how long; 0 = until resumed; -1 = resume
-- ARGV[5]  lease_ms    int     the lease of a queue seen for the first time
-- ARGV[6]  switch      text    channel
-- returns  paused_until_ms: 0 = until resumed, -1 = not paused
-- cost     O(1)
--
-- Why HDEL of nothing comes first: it is a write that a server at its memory limit allows, and opens it for the rest.
-- Who has to stop the work on a full server must be able to.
-- Why a hint to workers that cannot be sent is no error: they look now and then.

local meta = KEYS[1]
local now, queue, wake, length, lease = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if length < 0 then
  redis.call('HDEL', meta, 'paused_until_ms')
  redis.call('PUBLISH', wake, queue .. ' ' .. string.format('%.0f', now))
  redis.pcall('PUBLISH', ARGV[6] or '', queue)
  return -1
end
local to = length == 0 and 0 or now + length
redis.call('HDEL', meta, '')
redis.call('HSET', meta, 'paused_until_ms', string.format('%.0f', to))
if redis.call('HSETNX', meta, 'schema', '1') == 1 then redis.call('HSET', meta, 'lease_ms', lease, 'shards', '1') end
redis.pcall('PUBLISH', ARGV[6] or '', queue)
return to
