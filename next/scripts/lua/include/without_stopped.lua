-- The owned rows whose job was not asked to stop. A job that was asked to stop gets the answer 2: it must neither run
-- again nor fail, so its caller settles it by ack with alone = 2. Its wish stays until then.
local function without_stopped(cancel, rows, owned, answers)
  if #owned == 0 or redis.call('HLEN', cancel) == 0 then
    return owned, answers
  end
  local kept = {}
  local asked = redis.call('HMGET', cancel, unpack(column(rows, 'id')))
  for n, row in ipairs(rows) do
    if answers[n] == 1 and asked[n] then
      answers[n] = 2
    elseif answers[n] == 1 then
      kept[#kept + 1] = row
    end
  end
  return kept, answers
end
