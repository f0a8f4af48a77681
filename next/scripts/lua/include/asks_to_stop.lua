-- Returns true if a value of `cancel` asks the running job to stop. A negative time, which cancel.lua stores if its
-- argument `running` is 2, lets the job finish, but does not let it run again.
local function asks_to_stop(asked)
  return asked and string.sub(asked, 1, 1) ~= '-'
end
