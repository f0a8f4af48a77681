-- Returns the content of the array `history` for a new failure, without the brackets. The content is the JSON of the
-- failure before the new one. That failure has the failure before it in its own `history`, and so on. If `earlier`
-- already contains nine nested failures, `earlier` itself is left out, so that the nine oldest failures stay. Returns
-- '' if there is no earlier failure, or if `earlier` is not a JSON object.
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
