-- Returns the hashes that are not empty. Few jobs have rows in these hashes, so the caller can skip most of them.
local function filled(hashes)
  local found = {}
  for _, key in ipairs(hashes) do
    if redis.call('HLEN', key) > 0 then
      found[#found + 1] = key
    end
  end
  return found
end
