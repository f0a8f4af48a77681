-- Finds the members of a batch. Returns a table: id -> the key that has the member, which is `pending`, `succeeded`,
-- `broken` or `skipped`. An unknown id has no row in the table.
local function member_places(ids, pending, succeeded, broken, skipped)
  local places = {}
  if #ids == 0 then
    return places
  end
  for _, hash in ipairs({ pending, broken, skipped }) do
    for n, value in ipairs(redis.call('HMGET', hash, unpack(ids))) do
      if value then
        places[ids[n]] = hash
      end
    end
  end
  for n, is_member in ipairs(redis.call('SMISMEMBER', succeeded, unpack(ids))) do
    if is_member == 1 then
      places[ids[n]] = succeeded
    end
  end
  return places
end
