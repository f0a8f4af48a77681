-- The due time that `when` names: '+delay_ms' counts from now, 'due_ms' in the past means now. nil when it is no time.
local function due_time(when, now)
  local due = tonumber(when)
  if due and string.sub(when, 1, 1) == '+' then
    due = due + now
  end
  local is_time = due and due > -2 ^ 53 and due < 2 ^ 53
  return is_time and math.max(due, now) or nil
end
