-- Pads an entry id with zeros, so that ids can be compared as text. Lua's numbers cannot hold both 64-bit halves
-- exactly.
local function padded(entry_id)
  return (string.gsub(entry_id, '%d+', function(digits)
    return string.rep('0', 20 - #digits) .. digits
  end))
end
