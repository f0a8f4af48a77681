-- include: padded
-- include: find_group

-- The id up to which entries count as delivered. nil = all of them: the group is lost, or was set back below
-- `delivered`, the highest id that it ever gave out, so a worker may hold any entry.
local function last_delivered(stream, delivered)
  local group = find_group(stream)
  local last = group and group['last-delivered-id']
  if last and delivered and padded(last) < padded(delivered) then
    return nil
  end
  return last
end
