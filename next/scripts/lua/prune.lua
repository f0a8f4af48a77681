-- prune: forget what was kept long enough.
--
-- MOVES  completed -> absent, when its retention is over; failed -> absent, when it failed too long ago
--
-- KEYS   failed      zset    id -> failed at, epoch ms
-- KEYS   completed   zset    id -> forget at, epoch ms
-- KEYS   jobs        hash    id -> envelope
-- KEYS   errors      hash    id -> failure, JSON
-- KEYS   results     hash    id -> result, JSON
-- KEYS   recoveries  hash    id -> times its worker vanished
-- KEYS   unique      hash    digest -> id of its owner; `id until_ms` for a window
-- KEYS   locks       hash    id -> digest
--
-- ARGV   now         clock
-- ARGV   keep_ms     int     how long failed jobs are kept
-- ARGV   limit       int     jobs at most of each kind, 1..500
-- ARGV*  windows     {digest}   windows of unique keys that are over, as far as the caller knows
--
-- RETURNS  {completed jobs forgotten, failed jobs forgotten, windows dropped}
-- COST     O(limit * log n + windows)
--
-- Nothing else drops windows. It need not be punctual: a window that is over keeps no job out, it only takes room.

-- include: free_locks

local function forget(set, ids)
  if #ids == 0 then
    return
  end
  redis.call('ZREM', set, unpack(ids))
  redis.call('HDEL', jobs, unpack(ids))
  redis.call('HDEL', errors, unpack(ids))
  redis.call('HDEL', results, unpack(ids))
  redis.call('HDEL', recoveries, unpack(ids))
  free_locks(unique, locks, ids)
end

local over = redis.call('ZRANGE', completed, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
local old = redis.call('ZRANGE', failed, '-inf', now - keep_ms, 'BYSCORE', 'LIMIT', 0, limit)
forget(completed, over)
forget(failed, old)

local dropped = 0
for _, window in ipairs(windows) do
  local row = redis.call('HGET', unique, window.digest) or ''
  local until_ms = tonumber(string.match(row, ' (%d+)$'))
  if until_ms and until_ms <= now then
    dropped = dropped + redis.call('HDEL', unique, window.digest)
  end
end
return { #over, #old, dropped }
