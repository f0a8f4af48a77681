-- include: padded
-- include: find_group

-- Returns the id up to which entries count as delivered. Returns nil if every entry counts as delivered, because a
-- worker may be running any of them: the group is missing, or its last-delivered id was moved below `delivered`, the
-- highest id that it ever delivered.
local function last_delivered(stream, delivered)
  local group = find_group(stream)
  local last = group and group['last-delivered-id']
  if last and delivered and padded(last) < padded(delivered) then
    return nil
  end
  return last
end
