-- unlock: free the unique key of a job that is about to start, if it is still this job's.
--
-- MOVES  nothing
--
-- KEYS   entries     hash    id -> entry id, while the job is in the stream
-- KEYS   unique      hash    digest -> id of its owner; `id until_ms` for a window
-- KEYS   locks       hash    id -> digest
--
-- ARGV   id          text
-- ARGV   entry       text    the delivery that is about to start; '' = whatever the state of the job is
-- ARGV   digest      text    of the unique key
--
-- RETURNS  freed, free (it was not, or no longer, this job's) or fenced (the entry is no longer this job's)
-- COST     O(1)

-- A delivery that was taken back frees nothing: another worker has the job, and its start frees the key.
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
