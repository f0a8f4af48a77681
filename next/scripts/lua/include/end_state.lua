-- Returns 'failed' if the job has failed, 'completed' if it is completed, and nil otherwise.
local function end_state(failed, completed, id)
  if redis.call('ZSCORE', failed, id) then
    return 'failed'
  end
  return redis.call('ZSCORE', completed, id) and 'completed' or nil
end
