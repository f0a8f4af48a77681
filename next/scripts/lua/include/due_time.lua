-- Converts `when` to a due time in epoch ms. `when` is '+delay_ms', which counts from `now`, or a time in epoch ms. A
-- time in the past becomes `now`. Returns nil if `when` is not valid.
local function due_time(when, now)
  local due = tonumber(when)
  if due and string.sub(when, 1, 1) == '+' then
    due = due + now
  end
  local is_time = due and due > -2 ^ 53 and due < 2 ^ 53
  return is_time and math.max(due, now) or nil
end
