-- Wakes a mover, which calls a relay. A wake-up that cannot be sent is no error: relays look now and then.
local function wake_relay(wake, queue, at)
  redis.pcall('PUBLISH', wake, queue .. ' ' .. at)
end
