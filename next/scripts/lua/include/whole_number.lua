-- Converts a field of `meta` to a number. Returns nil if the field is absent, or is not a whole number below 10^15.
local function whole_number(word)
  local is_whole = word and #word <= 15 and string.match(word, '^%d+$')
  return is_whole and tonumber(word) or nil
end
