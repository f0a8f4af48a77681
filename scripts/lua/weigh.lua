-- weigh: estimate how much memory the keys of a queue take.
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
-- KEYS[11] outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended` and `job`
-- KEYS[12] activity    hash    minute of the day -> what happened in it, JSON
-- KEYS[13] history     hash    day since 1970, modulo 90 -> what happened on it, JSON
-- KEYS[14] types_by_hour hash  hour and job name -> how these jobs ran, JSON
-- KEYS[15] types_by_day  hash  day and job name -> how these jobs ran, JSON
-- returns  bytes; the keys that are left out hold little
-- cost     O(1): the server looks at five rows of each key and estimates

local scheduled = KEYS[1]
local jobs = KEYS[2]
local stream = KEYS[3]
local entries = KEYS[4]
local failed = KEYS[5]
local errors = KEYS[6]
local completed = KEYS[7]
local results = KEYS[8]
local unique = KEYS[9]
local locks = KEYS[10]
local outbox = KEYS[11]
local activity = KEYS[12]
local history = KEYS[13]
local types_by_hour = KEYS[14]
local types_by_day = KEYS[15]

local keys = {
  scheduled,
  jobs,
  stream,
  entries,
  failed,
  errors,
  completed,
  results,
  unique,
  locks,
  outbox,
  activity,
  history,
  types_by_hour,
  types_by_day,
}
local bytes = 0
for _, key in ipairs(keys) do
  bytes = bytes + (redis.call('MEMORY', 'USAGE', key) or 0)
end
return bytes
