-- Returns the due time of the first scheduled job, or infinity if no job is scheduled.
local function head_due(scheduled)
  return tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2] or math.huge)
end
