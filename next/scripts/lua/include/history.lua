-- Returns the content of the `history` array for a new failure: the JSON of the failure before it, without the
-- brackets. Returns '' without an earlier failure, or if it is not a JSON object. Failures are nested: each has the one
-- before it in its own history. If nine failures are nested in `earlier`, it is left out itself, so that the first nine
-- stay.
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
