-- Returns the answer for a job that is not scheduled, ready or reserved: `failed`, `finished` or `unknown`.
local function answer_of_end(failed, completed, id)
  if redis.call('ZSCORE', failed, id) then
    return 'failed'
  end
  return redis.call('ZSCORE', completed, id) and 'finished' or 'unknown'
end
