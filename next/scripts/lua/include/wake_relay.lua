-- Wakes a mover, so that it sees the new outbox record and the relay starts at once. An error of PUBLISH is ignored,
-- because relays also look into the outbox at regular intervals.
local function wake_relay(wake, queue, at)
  redis.pcall('PUBLISH', wake, queue .. ' ' .. at)
end
