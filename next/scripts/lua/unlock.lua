-- unlock: Free the unique key of a job that is about to start, if the job still owns the key.
--
-- MOVES  nothing
--
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   unique      hash    digest -> id of the job that owns the unique key; for a window (see README.md), the field
--                            `digest.window_ms` -> `id until_ms`; the window blocks the key until `until_ms`
-- KEYS   locks       hash    id -> digest of the job's unique key
--
-- ARGV   id          text    job id
-- ARGV   entry       text    entry id of the delivery that is about to start; '' = do not check that the job still
--                            belongs to the caller
-- ARGV   digest      text    name of the field in `unique`: `digest`, or `digest.window_ms` to free the key before its
--                            window is over
--
-- RETURNS  freed   the job owned the key, which is free now
--          free    nothing changed: the job did not own the key
--          fenced  nothing changed: the job no longer belongs to the caller
-- COST     O(1)

-- If the script answers `fenced`, the key is not freed. The next worker of the job frees the key when that worker
-- starts the job.
if entry ~= '' and redis.call('HGET', entries, id) ~= entry then
  return 'fenced'
end
local owner = string.match(redis.call('HGET', unique, digest) or '', '^%S+')
if owner ~= id then
  return 'free'
end
redis.call('HDEL', unique, digest)
if redis.call('HGET', locks, id) == digest then
  redis.call('HDEL', locks, id)
end
return 'freed'
