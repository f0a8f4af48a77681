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
-- KEYS[8]  outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended` and `job`
-- KEYS[9]  aside       hash    id -> what a migration took out
-- KEYS[10] recoveries  hash    id -> times its worker vanished
-- KEYS[11] errors      hash    id -> failure
-- KEYS[12] results     hash    id -> result
-- KEYS[13] unique      hash    digest -> owning id
-- KEYS[14] locks       hash    id -> digest
-- KEYS[15] cancel      hash    id -> asked at
-- KEYS[16] progress    hash    id -> the job's last progress report
-- KEYS[17] stamps      hash    outbox entry -> when it was first given to a relay
-- KEYS[18] activity    hash    minute and what happened -> count
-- KEYS[19] history     hash    day -> what happened on it
-- KEYS[20] types_by_hour hash  hour and job name -> how these jobs ran
-- KEYS[21] types_by_day  hash  day and job name -> how these jobs ran
-- ARGV[1]  look        0|1     1 = only count
-- returns  {scheduled, entries in the stream, failed, completed, other jobs, follow-ups in the outbox, jobs set aside}:
--          what it holds. Nothing is removed unless all of them are 0
-- cost     O(rows of `activity`, `types_by_hour` and `types_by_day`), which are limited
--
-- The list of queues lies in another slot, so it is not changed here. The caller takes the name off it and calls again,
-- which finds what came in between. Nothing is left of `meta`: the next schedule sees a new queue and tells its caller
-- to register it. A window of a unique key goes with its queue.
-- Entry ids of a queue that is used again are higher than those before, as far as the server's clock did not go back.

local meta = KEYS[1]
local scheduled = KEYS[2]
local stream = KEYS[3]
local failed = KEYS[4]
local completed = KEYS[5]
local jobs = KEYS[6]
local entries = KEYS[7]
local outbox = KEYS[8]
local aside = KEYS[9]
local recoveries = KEYS[10]
local errors = KEYS[11]
local results = KEYS[12]
local unique = KEYS[13]
local locks = KEYS[14]
local cancel = KEYS[15]
local progress = KEYS[16]
local stamps = KEYS[17]
local activity = KEYS[18]
local history = KEYS[19]
local types_by_hour = KEYS[20]
local types_by_day = KEYS[21]
local only_count = ARGV[1] == '1'

-- Read every key, so that one of the wrong type raises its error before the first write.
local hashes = {
  types_by_hour,
  types_by_day,
  meta,
  recoveries,
  errors,
  results,
  unique,
  locks,
  cancel,
  progress,
  stamps,
  activity,
  history,
}
for _, key in ipairs(hashes) do
  redis.call('HLEN', key)
end
local scheduled_count = redis.call('ZCARD', scheduled)
local failed_count = redis.call('ZCARD', failed)
local completed_count = redis.call('ZCARD', completed)
local entry_count = math.max(redis.call('XLEN', stream), redis.call('HLEN', entries))
local placed = scheduled_count + failed_count + completed_count + entry_count
local holds = {
  scheduled_count,
  entry_count,
  failed_count,
  completed_count,
  math.max(0, redis.call('HLEN', jobs) - placed),
  redis.call('XLEN', outbox),
  redis.call('HLEN', aside),
}
local is_empty = true
for _, count in ipairs(holds) do
  if count > 0 then
    is_empty = false
  end
end
if is_empty and not only_count then
  redis.call('DEL', unpack(KEYS))
end
return holds
