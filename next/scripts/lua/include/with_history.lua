-- include: history

-- A failure, JSON, with the earlier one in its history. A failure that brings a history of its own stays as it is.
local function with_history(failure, earlier)
  local before = history(earlier)
  if before == '' or string.find(failure, '"history":[{', 1, true) then
    return failure
  end
  failure = string.gsub(failure, ',%s*"history"%s*:%s*%[%s*%]', '') -- take an empty history out
  failure = string.gsub(failure, '"history"%s*:%s*%[%s*%]%s*,', '')
  local members = string.match(failure, '^%s*({.*[^{%s])%s*}%s*$')
  if not members or string.find(members, '"history"%s*:') then
    return failure
  end
  return members .. ',"history":[' .. before .. ']}'
end
