-- retry: give a failed job all its tries again, now.
--
-- MOVES  failed -> scheduled
--
-- KEYS   failed      zset    id -> failed at, epoch ms
-- KEYS   scheduled   zset    id -> due, epoch ms
-- KEYS   jobs        hash    id -> envelope
-- KEYS   entries     hash    id -> entry id, while the job is in the stream
-- KEYS   completed   zset    id -> forget at, epoch ms
-- KEYS   recoveries  hash    id -> times its worker vanished
-- KEYS   unique      hash    digest -> id of its owner
-- KEYS   locks       hash    id -> digest
--
-- ARGV   now         clock
-- ARGV   queue       text    its name, for the wake-up
-- ARGV   wake        text    channel of the wake-up
-- ARGV   id          text
-- ARGV   fingerprint text    SHA-1 of the envelope that the caller has read
-- ARGV   envelope    text    the same with attempts 0
-- ARGV   digest      text    of its unique key, or ''
--
-- RETURNS  {answer, due_ms or '', owner or ''}: scheduled, changed (read it again), conflict (`owner` holds the unique
--          key), refused (it has not failed) or unknown
-- COST     O(log n)
--
-- The failure stays in `errors` until the job succeeds; the next failure takes it into its history.

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

-- An owner of the unique key that neither waits nor runs owns nothing (see schedule).
local owner = digest ~= '' and redis.call('HGET', unique, digest)
if owner and owner ~= id then
  local is_alive = redis.call('HEXISTS', entries, owner) == 1 or redis.call('ZSCORE', scheduled, owner)
  if is_alive then
    return { 'conflict', '', owner }
  end
end

-- ZADD comes first: it grows, so a server at its memory limit refuses the whole call.
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
