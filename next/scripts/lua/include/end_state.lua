-- The state of a job that has ended: failed or completed; nil for any other.
local function end_state(failed, completed, id)
  if redis.call('ZSCORE', failed, id) then
    return 'failed'
  end
  return redis.call('ZSCORE', completed, id) and 'completed' or nil
end
