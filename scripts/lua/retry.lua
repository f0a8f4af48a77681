-- retry: give a failed job all its tries again, now.
--
-- moves    failed -> scheduled
-- KEYS[1]  failed      zset    id -> failed at
-- KEYS[2]  scheduled   zset    id -> due_ms
-- KEYS[3]  jobs        hash    id -> envelope
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  completed   zset    id -> forget at
-- KEYS[6]  recoveries  hash    id -> times its worker vanished
-- KEYS[7]  unique      hash    digest -> owning id
-- KEYS[8]  locks       hash    id -> digest
-- KEYS[9]  outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended` and `job`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  queue       text    its name, for the wake-up
-- ARGV[3]  wake        text    channel of the wake-up
-- ARGV[4]  id          text
-- ARGV[5]  fingerprint text    SHA-1 of the envelope that the caller read
-- ARGV[6]  envelope    json    the same with attempts 0
-- ARGV[7]  digest      text    of its unique key, or ''
-- ARGV[8]  todo        json    what its batch must hear of, or ''
-- returns  {answer, due_ms or '', owner or ''}: scheduled, changed (read it again), conflict (owner holds the digest),
--          refused (it has not failed) or unknown
-- cost     O(log n)
--
-- The failure stays in `errors` until the job succeeds; the next failure takes it into its history.

local failed = KEYS[1]
local scheduled = KEYS[2]
local jobs = KEYS[3]
local entries = KEYS[4]
local completed = KEYS[5]
local recoveries = KEYS[6]
local unique = KEYS[7]
local locks = KEYS[8]
local outbox = KEYS[9]

local now = tonumber(ARGV[1])
local queue = ARGV[2]
local wake = ARGV[3]
local id = ARGV[4]
local fingerprint = ARGV[5]
local envelope = ARGV[6]
local digest = ARGV[7]
local todo = ARGV[8]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Read every key, so that one of the wrong type raises its error before the first write.
for _, key in ipairs({ jobs, entries, recoveries, unique, locks }) do
  redis.call('HLEN', key)
end
redis.call('ZCARD', completed)
redis.call('XLEN', outbox)
local head_due = tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2] or math.huge)

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
if owner and owner ~= id and (redis.call('HEXISTS', entries, owner) == 1 or redis.call('ZSCORE', scheduled, owner)) then
  return { 'conflict', '', owner }
end

-- ZADD comes first: it grows, so a server at its memory limit refuses the whole call.
local at = string.format('%.0f', now)
redis.call('ZADD', scheduled, at, id)
redis.call('HSET', jobs, id, envelope)
if digest ~= '' then
  redis.call('HSET', unique, digest, id)
  redis.call('HSET', locks, id, digest)
end
if todo ~= '' then
  redis.call('XADD', outbox, '*', 'todo', todo)
end
redis.call('ZREM', failed, id)
redis.call('HDEL', recoveries, id)
if now < head_due then
  redis.call('PUBLISH', wake, queue .. ' ' .. at)
end
return { 'scheduled', at, '' }
