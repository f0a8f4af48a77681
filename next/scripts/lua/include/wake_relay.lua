-- Wakes a mover, which calls the relay. An error of PUBLISH is ignored, because relays also poll.
local function wake_relay(wake, queue, at)
  redis.pcall('PUBLISH', wake, queue .. ' ' .. at)
end
