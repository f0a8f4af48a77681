-- include: history

-- Adds the earlier failure to the history of a failure. Both failures are JSON. A failure that already has a history is
-- returned unchanged.
local function with_history(failure, earlier)
  local before = history(earlier)
  if before == '' or string.find(failure, '"history":[{', 1, true) then
    return failure
  end
  failure = string.gsub(failure, ',%s*"history"%s*:%s*%[%s*%]', '') -- remove an empty history
  failure = string.gsub(failure, '"history"%s*:%s*%[%s*%]%s*,', '')
  local members = string.match(failure, '^%s*({.*[^{%s])%s*}%s*$')
  if not members or string.find(members, '"history"%s*:') then
    return failure
  end
  return members .. ',"history":[' .. before .. ']}'
end
