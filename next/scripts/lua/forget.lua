-- forget: drop failed or completed jobs for good.
--
-- MOVES  failed -> absent, completed -> absent
--
-- KEYS   failed      zset    id -> failed at, epoch ms
-- KEYS   completed   zset    id -> forget at, epoch ms
-- KEYS   jobs        hash    id -> envelope
-- KEYS   errors      hash    id -> failure, JSON
-- KEYS   results     hash    id -> result, JSON
-- KEYS   recoveries  hash    id -> times its worker vanished
-- KEYS   unique      hash    digest -> id of its owner
-- KEYS   locks       hash    id -> digest
-- KEYS   entries     hash    id -> entry id, while the job is in the stream
-- KEYS   scheduled   zset    id -> due, epoch ms
--
-- ARGV*  given       {id}
--
-- RETURNS  one answer each: forgotten, refused (it waits or runs) or unknown
-- COST     O(ids * log n)

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
