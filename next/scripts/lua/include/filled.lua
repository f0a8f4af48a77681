-- Those of the hashes that hold any row. Rows beside a job are rare, so they are looked for only there.
local function filled(hashes)
  local found = {}
  for _, key in ipairs(hashes) do
    if redis.call('HLEN', key) > 0 then
      found[#found + 1] = key
    end
  end
  return found
end
