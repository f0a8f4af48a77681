-- Wakes the movers. They sleep until the first job of the set is due, so a job with an earlier due time must wake them.
-- An error of PUBLISH, such as a missing permission, is ignored, because movers also look at regular intervals.
local function wake_mover(wake, queue, due)
  redis.pcall('PUBLISH', wake, queue .. ' ' .. string.format('%.0f', due))
end
