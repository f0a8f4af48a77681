-- Movers sleep until the first job of the set is due. A job before it wakes them. A hint that cannot be sent, because
-- the user may not publish, is no error: they look now and then.
local function wake_mover(wake, queue, due)
  redis.pcall('PUBLISH', wake, queue .. ' ' .. string.format('%.0f', due))
end
