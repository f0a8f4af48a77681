-- Wakes the movers. A mover notices the new outbox record and reports it to the relay of its process, so that the relay
-- reads the record at once. An error of PUBLISH is ignored, because relays also look into the outbox at regular
-- intervals.
local function wake_relay(wake, queue, at)
  redis.pcall('PUBLISH', wake, queue .. ' ' .. at)
end
