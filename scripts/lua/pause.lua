-- pause: stop promotion, direct append and fetching of a queue, for a time or until it is resumed; or resume it.
--
-- moves    nothing
-- KEYS[1]  meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  queue       text    its name, for the wake-up
-- ARGV[3]  wake        text    channel of the wake-up, for movers
-- ARGV[4]  for_ms      int     how long; 0 = until resumed; -1 = resume
-- ARGV[5]  lease_ms    int     the lease of a queue seen for the first time
-- ARGV[6]  switch      text    channel of the hint, for workers
-- returns  paused_until_ms: 0 = until resumed, -1 = not paused
-- cost     O(1)

local meta = KEYS[1]
local now = tonumber(ARGV[1])
local queue = ARGV[2]
local wake = ARGV[3]
local length = tonumber(ARGV[4])
local lease = ARGV[5]
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

local paused_until = length == 0 and 0 or now + length
-- HDEL of nothing frees memory for Redis: a server at its memory limit allows it, and then runs the rest of the script.
-- So a queue can be paused on a full server.
redis.call('HDEL', meta, '')
redis.call('HSET', meta, 'paused_until_ms', string.format('%.0f', paused_until))
if redis.call('HSETNX', meta, 'schema', '1') == 1 then
  redis.call('HSET', meta, 'lease_ms', lease, 'shards', '1')
end
-- A hint that cannot be sent is no error: workers look now and then.
redis.pcall('PUBLISH', ARGV[6] or '', queue)
return paused_until
