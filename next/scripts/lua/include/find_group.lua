-- The group `delayq` of a stream: a table with `pending` and `last-delivered-id`. nil without the stream or the group.
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
