-- include: is_followed

-- Writes the end of a job (done, failed, cancelled) into the outbox, where a relay works out what follows. Returns
-- whether anything may follow. `failure` may be ''.
local function leave_follow_up(outbox, ended, envelope, failure)
  if not is_followed(envelope) then
    return false
  end
  local reason = failure ~= '' and { 'failure', failure } or {}
  redis.call('XADD', outbox, '*', 'ended', ended, 'job', envelope, unpack(reason))
  return true
end
