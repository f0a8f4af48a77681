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
-- KEYS[9]  outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended` and `job`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  queue       text    its name, for the wake-up
-- ARGV[3]  wake        text    channel
-- ARGV[4]  id          text
-- ARGV[5]  fingerprint text    SHA-1 of the envelope that was read
-- ARGV[6]  envelope    json    the same with attempts 0
-- ARGV[7]  digest      text    of its unique key, or ''
-- ARGV[8]  todo        json    what its batch must hear of, or ''
-- returns  {answer, due_ms or '', owner or ''}: scheduled, changed (read it again), conflict (owner holds the digest),
--          refused (it has not failed) or unknown
-- cost     O(log n)
--
-- The failure stays in `errors` until the job succeeds: the next one is written beside it, not over it.
-- Why ZADD comes first: it is the write that grows, so a full server refuses the whole call.

local failed, scheduled, jobs, entries = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local completed, recoveries, unique, locks, outbox = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local now, queue, wake, id = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local fingerprint, envelope, digest, todo = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
for _, key in ipairs({ jobs, entries, recoveries, unique, locks }) do redis.call('HLEN', key) end
redis.call('ZCARD', completed)
redis.call('XLEN', outbox)
local head_due = tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2] or math.huge)
if not redis.call('ZSCORE', failed, id) then
  local elsewhere = redis.call('HEXISTS', entries, id) == 1 or redis.call('ZSCORE', scheduled, id)
    or redis.call('ZSCORE', completed, id)
  return { elsewhere and 'refused' or 'unknown', '', '' }
end
if redis.sha1hex(redis.call('HGET', jobs, id) or '') ~= fingerprint then return { 'changed', '', '' } end
local owner = digest ~= '' and redis.call('HGET', unique, digest)
local alive = owner and owner ~= id and (redis.call('HEXISTS', entries, owner) == 1 or redis.call('ZSCORE', scheduled, owner))
if alive then return { 'conflict', '', owner } end

local at = string.format('%.0f', now)
redis.call('ZADD', scheduled, at, id)
redis.call('HSET', jobs, id, envelope)
if digest ~= '' then
  redis.call('HSET', unique, digest, id)
  redis.call('HSET', locks, id, digest)
end
if todo ~= '' then redis.call('XADD', outbox, '*', 'todo', todo) end
redis.call('ZREM', failed, id)
redis.call('HDEL', recoveries, id)
if now < head_due then redis.call('PUBLISH', wake, queue .. ' ' .. at) end
return { 'scheduled', at, '' }
