-- retry: Schedule a failed job again. The job is due now, and its count of attempts starts at 0 again.
--
-- MOVES  failed -> scheduled
--
-- KEYS   failed       zset    id -> time of failure, epoch ms
-- KEYS   scheduled    zset    id -> due time, epoch ms
-- KEYS   jobs         hash    id -> envelope JSON
-- KEYS   entries      hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   completed    zset    id -> time to forget the job, epoch ms
-- KEYS   recoveries   hash    id -> number of times its worker vanished
-- KEYS   unique       hash    digest -> id of the job that owns the unique key
-- KEYS   locks        hash    id -> digest of the job's unique key
--
-- ARGV   now          clock   epoch ms, for tests; '' = server clock
-- ARGV   queue        text    name of the queue, for the wake-up
-- ARGV   wake         text    pub/sub channel that wakes movers; receives `<queue> <now>`
-- ARGV   id           text    job id
-- ARGV   fingerprint  text    SHA-1, in hex, of the envelope that the caller has read
-- ARGV   envelope     text    new envelope: the same one with the member `attempts` set to 0, and perhaps with other
--                             changes, such as a new payload
-- ARGV   digest       text    digest of the unique key; '' = no unique key
--
-- RETURNS  {answer, due_ms, owner}
--            answer  scheduled  the job is due now
--                    changed    nothing changed: the envelope does not match `fingerprint`; read the job again
--                    conflict   nothing changed: another job owns the unique key
--                    refused    nothing changed: the job is scheduled, ready, reserved or completed
--                    unknown    the id is unknown
--            due_ms  new due time, epoch ms; '' if nothing changed
--            owner   with the answer `conflict`, the id of the job that owns the unique key; else ''
-- COST     O(log n), where n is the number of scheduled and failed jobs
--
-- A repeated call answers `refused`. The old failure stays in `errors` until the job is done. If the job fails again,
-- the old failure becomes part of the history of the new failure.

-- include: head_due
-- include: wake_mover

if not redis.call('ZSCORE', failed, id) then
  local is_elsewhere = redis.call('HEXISTS', entries, id) == 1
    or redis.call('ZSCORE', scheduled, id)
    or redis.call('ZSCORE', completed, id)
  return { is_elsewhere and 'refused' or 'unknown', '', '' }
end
if redis.sha1hex(redis.call('HGET', jobs, id) or '') ~= fingerprint then
  return { 'changed', '', '' }
end

-- An owner of the unique key that is not scheduled, ready or reserved does not count (see `schedule`).
local owner = digest ~= '' and redis.call('HGET', unique, digest)
if owner and owner ~= id then
  local is_alive = redis.call('HEXISTS', entries, owner) == 1 or redis.call('ZSCORE', scheduled, owner)
  if is_alive then
    return { 'conflict', '', owner }
  end
end

-- ZADD comes first: it needs memory, so a full server refuses the call before anything is written.
local head = head_due(scheduled)
local due_text = string.format('%.0f', now)
redis.call('ZADD', scheduled, due_text, id)
redis.call('HSET', jobs, id, envelope)
if digest ~= '' then
  redis.call('HSET', unique, digest, id)
  redis.call('HSET', locks, id, digest)
end
redis.call('ZREM', failed, id)
redis.call('HDEL', recoveries, id)
if now < head then
  wake_mover(wake, queue, now)
end
return { 'scheduled', due_text, '' }
