-- The record of an earlier failure as the history of a later one may hold it: a list of its JSON objects, without the
-- brackets. Each failure holds the one before it. At most nine are kept: the first nine stay, and the failures between
-- them and the newest go. '' when there is none, or when it is no object.
local function history(earlier)
  if not (earlier and string.match(earlier, '^{.*}$')) then
    return ''
  end
  local _, depth = string.gsub(earlier, '"history":%[{', '')
  if depth > 8 then
    return string.match(earlier, ',"history":%[(.*)%]}$') or earlier
  end
  return earlier
end
