-- include: asks_to_stop

-- Returns the owned rows whose jobs have no stop request, and the answers for all rows. The answer for a job with a
-- stop request is 2, because such a job must neither run again nor fail. The caller settles the job by `ack` with
-- alone = 2. The stop request stays in `cancel` until then.
-- `may_finish`: true = a job that may finish but must not run again counts as a job without a stop request; nil = it
-- counts as a job with a stop request.
local function without_stopped(cancel, rows, owned, answers, may_finish)
  if #owned == 0 or redis.call('HLEN', cancel) == 0 then
    return owned, answers
  end
  local kept = {}
  local asked = redis.call('HMGET', cancel, unpack(column(rows, 'id')))
  for n, row in ipairs(rows) do
    if answers[n] == 1 and asked[n] and (not may_finish or asks_to_stop(asked[n])) then
      answers[n] = 2
    elseif answers[n] == 1 then
      kept[#kept + 1] = row
    end
  end
  return kept, answers
end
