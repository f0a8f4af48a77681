-- prune: forget what was kept long enough.
--
-- moves    completed -> absent, when its retention is over; failed -> absent, when it failed too long ago
-- KEYS[1]  failed      zset    id -> failed at
-- KEYS[2]  completed   zset    id -> forget at
-- KEYS[3]  jobs        hash    id -> envelope
-- KEYS[4]  errors      hash    id -> failure
-- KEYS[5]  results     hash    id -> result
-- KEYS[6]  recoveries  hash    id -> times its worker vanished
-- KEYS[7]  unique      hash    digest -> owning id
-- KEYS[8]  locks       hash    id -> digest
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  keep_ms     int     how long failed jobs are kept
-- ARGV[3]  limit       int     jobs at most of each kind, 1..500
-- returns  {completed jobs forgotten, failed jobs forgotten}
-- cost     O(limit * log n)

local failed = KEYS[1]
local completed = KEYS[2]
local jobs = KEYS[3]
local errors = KEYS[4]
local results = KEYS[5]
local recoveries = KEYS[6]
local unique = KEYS[7]
local locks = KEYS[8]

local now = tonumber(ARGV[1])
local keep = tonumber(ARGV[2])
local limit = tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Read every key, so that one of the wrong type raises its error before the first write.
for _, key in ipairs({ jobs, errors, results, recoveries, unique, locks }) do
  redis.call('HLEN', key)
end
local over = redis.call('ZRANGE', completed, '-inf', now, 'BYSCORE', 'LIMIT', 0, limit)
local old = redis.call('ZRANGE', failed, '-inf', now - keep, 'BYSCORE', 'LIMIT', 0, limit)

local function forget(set, ids)
  if #ids == 0 then
    return
  end
  redis.call('ZREM', set, unpack(ids))
  for _, key in ipairs({ jobs, errors, results, recoveries }) do
    redis.call('HDEL', key, unpack(ids))
  end
  for _, id in ipairs(redis.call('HLEN', locks) > 0 and ids or {}) do
    local digest = redis.call('HGET', locks, id)
    if digest and redis.call('HGET', unique, digest) == id then
      redis.call('HDEL', unique, digest)
    end
    redis.call('HDEL', locks, id)
  end
end

forget(completed, over)
forget(failed, old)
return { #over, #old }
