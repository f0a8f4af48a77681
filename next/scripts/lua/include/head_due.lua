-- When the first job of the set is due; infinite when none waits.
local function head_due(scheduled)
  return tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2] or math.huge)
end
