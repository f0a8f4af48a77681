-- prune: Delete completed jobs whose retention is over, failed jobs that are old, and ended windows of unique keys.
--
-- MOVES  completed -> absent, failed -> absent
--
-- KEYS   failed      zset    id -> time of failure, epoch ms
-- KEYS   completed   zset    id -> time to forget the job, epoch ms
-- KEYS   jobs        hash    id -> envelope JSON
-- KEYS   errors      hash    id -> failure JSON
-- KEYS   results     hash    id -> result JSON
-- KEYS   recoveries  hash    id -> number of times its worker vanished
-- KEYS   unique      hash    digest -> id of the job that owns the unique key; for a window (see README.md), the field
--                            `digest.window_ms` -> `id until_ms`; the window blocks the key until `until_ms`
-- KEYS   locks       hash    id -> digest of the job's unique key
--
-- ARGV   now         clock   epoch ms, for tests; '' = server clock
-- ARGV   keep_ms     int     how long failed jobs are kept, in ms
-- ARGV   limit       int     maximum number of completed jobs to delete, and also of failed jobs, 1..500
-- ARGV*  windows     {digest}   windows to check, as they are named in `unique`: 'digest.window_ms'
--
-- RETURNS  {completed, failed, windows}: how many completed jobs, failed jobs and windows were deleted
-- COST     O(limit * log n + windows), where n is the number of failed and completed jobs
--
-- A window may be deleted late. This does no harm, because a window that is over blocks no job.

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
