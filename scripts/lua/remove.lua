-- remove: forget a queue, or one shard of it, that holds nothing.
--
-- moves    nothing
-- KEYS[1]  meta        hash
-- KEYS[2]  scheduled   zset    id -> due_ms
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  failed      zset    id -> failed at
-- KEYS[5]  completed   zset    id -> forget at
-- KEYS[6]  jobs        hash    id -> envelope
-- KEYS[7]  entries     hash    id -> entry id
-- KEYS[8]  outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended` and `job`
-- KEYS[9]  aside       hash    id -> what a migration took out
-- KEYS[10] recoveries  hash    id -> times its worker vanished
-- KEYS[11] errors      hash    id -> failure
-- KEYS[12] results     hash    id -> what its handler returned
-- KEYS[13] unique      hash    digest -> owning id
-- KEYS[14] locks       hash    id -> digest
-- KEYS[15] cancel      hash    id -> asked at
-- KEYS[16] progress    hash    id -> what the job told last
-- KEYS[17] stamps      hash    id -> times of follow-ups
-- KEYS[18] activity    hash    minute and what happened -> count
-- KEYS[19] history     hash    day -> what happened on it
-- KEYS[20] types_by_hour hash  hour and job name -> how these jobs ran
-- KEYS[21] types_by_day  hash  day and job name -> how these jobs ran
-- ARGV[1]  look        0|1     1 = only count
-- returns  {scheduled, entries in the stream, failed, completed, other jobs, follow-ups in the outbox, jobs set aside}:
--          what it holds. Nothing is removed unless all of them are 0
-- cost     O(rows of `activity`, `types_by_hour` and `types_by_day`), which are limited
--
-- Why the list of queues is not changed here: it lies in another slot. The caller takes the name off it and calls again,
-- so that what came in between is found.
-- Why nothing is left of `meta`: the next `schedule` then sees a new queue and tells its caller to register it.
-- A window of a unique key goes with its queue.

local meta, scheduled, stream, failed, completed, jobs = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local entries, outbox, aside, recoveries, errors, results = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local unique, locks, cancel, progress, stamps, activity = KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17], KEYS[18]
local history, types_by_hour, types_by_day = KEYS[19], KEYS[20], KEYS[21]
local look = ARGV[1] == '1'

local hashes = { meta, recoveries, errors, results, unique, locks, cancel, progress, stamps, activity, history }
for _, key in ipairs({ types_by_hour, types_by_day, unpack(hashes) }) do redis.call('HLEN', key) end
local waiting, given_up, kept = redis.call('ZCARD', scheduled), redis.call('ZCARD', failed), redis.call('ZCARD', completed)
local placed = math.max(redis.call('XLEN', stream), redis.call('HLEN', entries))
local others = math.max(0, redis.call('HLEN', jobs) - waiting - given_up - kept - placed)
local holds = { waiting, placed, given_up, kept, others, redis.call('XLEN', outbox), redis.call('HLEN', aside) }
for _, count in ipairs(holds) do
  if count > 0 then look = true end
end
if not look then redis.call('DEL', unpack(KEYS)) end
return holds
