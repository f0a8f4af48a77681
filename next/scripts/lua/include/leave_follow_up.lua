-- include: is_followed

-- Records the end of a job (`done`, `failed` or `cancelled`) in the outbox, if the job may be in a chain or a batch.
-- The relay then sends the follow-up jobs. Returns true if a record was written. `failure` is JSON or ''.
local function leave_follow_up(outbox, ended, envelope, failure)
  if not is_followed(envelope) then
    return false
  end
  local reason = failure ~= '' and { 'failure', failure } or {}
  redis.call('XADD', outbox, '*', 'ended', ended, 'job', envelope, unpack(reason))
  return true
end
