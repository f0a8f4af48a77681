-- unlock: free the lock of a job that is about to start, or whose lock is freed by hand, if it is still this job's.
--
-- moves    nothing
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  unique      hash    digest -> owning id; `id until_ms` for a window
-- KEYS[3]  locks       hash    id -> digest
-- ARGV[1]  id          text
-- ARGV[2]  entry       text    the delivery that is about to start; '' = freed by hand, in whatever state the job is
-- ARGV[3]  digest      text    of the unique key
-- returns  freed, free (it was not, or no longer, this job's) or fenced (the entry is not this job's any more)
-- cost     O(1)

local entries, unique, locks = KEYS[1], KEYS[2], KEYS[3]
local id = ARGV[1]
local entry = ARGV[2]
local digest = ARGV[3]
for _, key in ipairs({ entries, unique, locks }) do
  redis.call('HLEN', key)
end
-- A delivery that was taken back frees nothing: another worker has the job, and its start frees the lock.
if entry ~= '' and redis.call('HGET', entries, id) ~= entry then
  return 'fenced'
end
if string.match(redis.call('HGET', unique, digest) or '', '^%S+') ~= id then
  return 'free'
end
redis.call('HDEL', unique, digest)
if redis.call('HGET', locks, id) == digest then
  redis.call('HDEL', locks, id)
end
return 'freed'
