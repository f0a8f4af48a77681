-- silent: list the delivered jobs whose consumer has been silent for longer than the lease.
--
-- moves    nothing
-- KEYS[1]  stream      stream  group `delayq`
-- KEYS[2]  entries     hash    id -> entry id
-- KEYS[3]  meta        hash
-- ARGV[1]  limit       int     jobs named at most, 1..100
-- returns  {how many, counted up to 500; then 3 each: id, consumer, ms since it last spoke}
-- cost     O(pending); 1 MB of payload, but one entry at least
--
-- A worker renews what it holds every third of a lease, so a longer silence means that it is dead, frozen or cut off.

local stream, entries, meta = KEYS[1], KEYS[2], KEYS[3]
local limit = tonumber(ARGV[1])
local lease = tonumber(redis.call('HGET', meta, 'lease_ms') or 0) or 0
redis.call('HLEN', entries)
local groups = lease > 0 and redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}
local has_group = false
for _, group in ipairs(groups) do
  for i = 1, #group, 2 do
    has_group = has_group or (group[i] == 'name' and group[i + 1] == 'delayq')
  end
end
if not has_group then
  return { 0 }
end

local rows = redis.call('XPENDING', stream, 'delayq', 'IDLE', string.format('%d', lease + 1), '-', '+', 500)
local reply = { #rows }
local bytes = 0
for _, row in ipairs(rows) do
  if #reply > limit * 3 or bytes > 1000000 then
    break
  end
  local entry = row[1]
  local found = redis.call('XRANGE', stream, entry, entry)[1]
  local fields = {}
  for i = 1, found and #found[2] or 0, 2 do
    fields[found[2][i]] = found[2][i + 1]
    bytes = bytes + #found[2][i + 1]
  end
  if fields.id and redis.call('HGET', entries, fields.id) == entry then
    reply[#reply + 1] = fields.id
    reply[#reply + 1] = row[2]
    reply[#reply + 1] = row[3]
  else
    -- The janitor looks after pending rows without an entry, and after entries that are not their job's any more.
    reply[1] = reply[1] - 1
  end
end
return reply
