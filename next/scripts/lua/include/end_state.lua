-- Returns 'failed' or 'completed' for a job in this state, or nil for any other job.
local function end_state(failed, completed, id)
  if redis.call('ZSCORE', failed, id) then
    return 'failed'
  end
  return redis.call('ZSCORE', completed, id) and 'completed' or nil
end
