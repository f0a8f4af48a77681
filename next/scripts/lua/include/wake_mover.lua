-- Wakes the movers. A mover sleeps until the first scheduled job is due, so a job with an earlier due time must wake
-- it. An error of PUBLISH, such as a missing permission, is ignored, because movers also look at regular intervals.
local function wake_mover(wake, queue, due)
  redis.pcall('PUBLISH', wake, queue .. ' ' .. string.format('%.0f', due))
end
