-- Returns the XINFO fields of the group `delayq`, such as `pending` and `last-delivered-id`, or nil if the stream or
-- the group is missing.
local function find_group(stream)
  if redis.call('EXISTS', stream) == 0 then
    return nil
  end
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local info = {}
    for n = 1, #group, 2 do
      info[group[n]] = group[n + 1]
    end
    if info['name'] == 'delayq' then
      return info
    end
  end
  return nil
end
