-- forget: drop failed or completed jobs for good.
--
-- moves    failed -> absent, completed -> absent
-- KEYS[1]  failed      zset    id -> failed at
-- KEYS[2]  completed   zset    id -> forget at
-- KEYS[3]  jobs        hash    id -> envelope
-- KEYS[4]  errors      hash    id -> failure
-- KEYS[5]  results     hash    id -> result
-- KEYS[6]  recoveries  hash    id -> times its worker vanished
-- KEYS[7]  unique      hash    digest -> owning id
-- KEYS[8]  locks       hash    id -> digest
-- KEYS[9]  entries     hash    id -> entry id
-- KEYS[10] scheduled   zset    id -> due_ms
-- ARGV[1+] id          1 each
-- returns  one answer each: forgotten, refused (it waits or runs) or unknown
-- cost     O(ids * log n); at most 500 a call

local failed = KEYS[1]
local completed = KEYS[2]
local jobs = KEYS[3]
local errors = KEYS[4]
local results = KEYS[5]
local recoveries = KEYS[6]
local unique = KEYS[7]
local locks = KEYS[8]
local entries = KEYS[9]
local scheduled = KEYS[10]

-- Read every key, so that one of the wrong type raises its error before the first write.
for _, key in ipairs({ jobs, errors, results, recoveries, unique, locks, entries }) do
  redis.call('HLEN', key)
end
for _, key in ipairs({ failed, completed, scheduled }) do
  redis.call('ZCARD', key)
end

local reply = {}
for n, id in ipairs(ARGV) do
  if redis.call('HEXISTS', entries, id) == 1 or redis.call('ZSCORE', scheduled, id) then
    reply[n] = 'refused'
  elseif redis.call('ZREM', failed, id) + redis.call('ZREM', completed, id) > 0 then
    for _, key in ipairs({ jobs, errors, results, recoveries }) do
      redis.call('HDEL', key, id)
    end
    local digest = redis.call('HGET', locks, id)
    if digest and redis.call('HGET', unique, digest) == id then
      redis.call('HDEL', unique, digest)
    end
    redis.call('HDEL', locks, id)
    reply[n] = 'forgotten'
  else
    reply[n] = 'unknown'
  end
end
return reply
