-- An entry id in a form that compares as text: Lua's numbers are too short for both of its halves.
local function padded(entry_id)
  return (string.gsub(entry_id, '%d+', function(digits)
    return string.rep('0', 20 - #digits) .. digits
  end))
end
