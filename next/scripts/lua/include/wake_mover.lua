-- Movers sleep until the first job of the set is due. A job before it wakes them.
local function wake_mover(wake, queue, due)
  redis.call('PUBLISH', wake, queue .. ' ' .. string.format('%.0f', due))
end
