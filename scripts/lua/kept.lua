-- kept: whether jobs are still held under these entries, and how long ago each entry was read or renewed.
--
-- moves    nothing
-- KEYS[1]  stream   stream  group `delayq`
-- KEYS[2]  entries  hash    id -> entry id
-- KEYS[3]  meta     hash
-- ARGV[1]  lease_ms int     the lease where the queue has none of its own
-- ARGV[2+] held     2 each  id, entry id
-- returns  {lease in force, then 1 each: ms since it was read or renewed, -1 when its job has another entry or none}
-- cost     O(held * log n)

local stream, entries, meta = KEYS[1], KEYS[2], KEYS[3]
local lease = redis.call('HGET', meta, 'lease_ms')
lease = lease and #lease <= 15 and string.match(lease, '^%d+$') and tonumber(lease) or tonumber(ARGV[1])
local reply = { lease }
for n = 2, #ARGV, 2 do
  local idle = -1
  if redis.call('HGET', entries, ARGV[n]) == ARGV[n + 1] then
    -- An entry that is not pending counts as renewed now: it is its job's own, and its row is about to be repaired.
    local rows = redis.pcall('XPENDING', stream, 'delayq', ARGV[n + 1], ARGV[n + 1], 1)
    idle = not rows.err and rows[1] and rows[1][3] or 0
  end
  reply[#reply + 1] = idle
end
return reply
