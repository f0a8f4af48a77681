-- forget: Delete failed or completed jobs.
--
-- MOVES  failed -> absent, completed -> absent
--
-- KEYS   failed      zset    id -> time of failure, epoch ms
-- KEYS   completed   zset    id -> time to forget the job, epoch ms
-- KEYS   jobs        hash    id -> envelope JSON
-- KEYS   errors      hash    id -> failure JSON
-- KEYS   results     hash    id -> result JSON
-- KEYS   recoveries  hash    id -> number of times its worker vanished
-- KEYS   unique      hash    digest -> id of the job that owns the unique key
-- KEYS   locks       hash    id -> digest of the job's unique key
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   scheduled   zset    id -> due time, epoch ms
--
-- ARGV*  given       {id}
--
-- RETURNS  A list with a word for each id:
--            forgotten  the job was deleted
--            refused    nothing changed: the job is scheduled, ready or reserved
--            unknown    the id is unknown
-- COST     O(ids * log n), where n is the number of failed and completed jobs
--
-- A repeated call returns `unknown` for jobs that the first call deleted.

-- include: free_locks

local reply = {}
for n, row in ipairs(given) do
  local id = row.id
  if redis.call('HEXISTS', entries, id) == 1 or redis.call('ZSCORE', scheduled, id) then
    reply[n] = 'refused'
  elseif redis.call('ZREM', failed, id) + redis.call('ZREM', completed, id) > 0 then
    redis.call('HDEL', jobs, id)
    redis.call('HDEL', errors, id)
    redis.call('HDEL', results, id)
    redis.call('HDEL', recoveries, id)
    free_locks(unique, locks, { id })
    reply[n] = 'forgotten'
  else
    reply[n] = 'unknown'
  end
end
return reply
