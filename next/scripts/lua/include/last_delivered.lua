-- include: padded
-- include: find_group

-- Returns the id up to which entries count as delivered. Returns nil if the group is missing, or if its last-delivered
-- id was moved below `delivered`, an earlier last-delivered id that a script has stored in `meta`. Every entry then
-- counts as delivered, because a worker may be running the job of any entry.
local function last_delivered(stream, delivered)
  local group = find_group(stream)
  local last = group and group['last-delivered-id']
  if last and delivered and padded(last) < padded(delivered) then
    return nil
  end
  return last
end
