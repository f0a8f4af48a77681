-- weigh: how much memory the keys of a queue take, about.
--
-- moves    nothing
-- KEYS[1]  scheduled   zset    id -> due_ms
-- KEYS[2]  jobs        hash    id -> envelope
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  failed      zset    id -> failed at
-- KEYS[6]  errors      hash    id -> failure
-- KEYS[7]  completed   zset    id -> forget at
-- KEYS[8]  results     hash    id -> result
-- KEYS[9]  unique      hash    digest -> owning id
-- KEYS[10] locks       hash    id -> digest
-- KEYS[11] outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended` and `job`
-- KEYS[12] activity    hash    minute of the day -> what happened in it, JSON
-- KEYS[13] history     hash    day since 1970, modulo 90 -> what happened on it, JSON
-- KEYS[14] types_by_hour hash  hour and job name -> how these jobs ran, JSON
-- KEYS[15] types_by_day  hash  day and job name -> how these jobs ran, JSON
-- returns  bytes
-- cost     O(1): the server looks at five rows of each and reckons
--
-- The few keys that are left out hold little.

local scheduled, jobs, stream, entries, failed, errors = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local completed, results, unique, locks, outbox, activity = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local history, types_by_hour, types_by_day = KEYS[13], KEYS[14], KEYS[15]
local bytes = 0
for _, key in ipairs({ scheduled, jobs, stream, entries, failed, errors, completed, results, unique, locks, outbox, activity,
  history, types_by_hour, types_by_day }) do
  bytes = bytes + (redis.call('MEMORY', 'USAGE', key) or 0)
end
return bytes
