-- queue_remove: Delete all keys of an empty queue, or of one empty shard.
--
-- MOVES  nothing
--
-- KEYS   meta        hash    all fields
-- KEYS   scheduled   zset    id -> due time, epoch ms
-- KEYS   stream      stream  entries of ready and reserved jobs; consumer group `delayq`
-- KEYS   failed      zset    id -> time of failure, epoch ms
-- KEYS   completed   zset    id -> time to forget the job, epoch ms
-- KEYS   jobs        hash    id -> envelope JSON
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   outbox      stream  job-end records for the relay
-- KEYS   recoveries  hash    id -> number of times its worker vanished
-- KEYS   errors      hash    id -> failure JSON
-- KEYS   results     hash    id -> result JSON
-- KEYS   unique      hash    digest -> id of the job that owns the unique key
-- KEYS   locks       hash    id -> digest of the job's unique key
-- KEYS   cancel      hash    id -> time of the stop request, epoch ms
-- KEYS   progress    hash    id -> last progress report, JSON
-- KEYS   activity    hash    minute of the day -> counts of that minute, JSON
-- KEYS   history     hash    day since 1970, modulo 90 -> counts of that day, JSON
--
-- ARGV   look        int     1 = only count, 0 = delete the keys if the queue is empty
--
-- RETURNS  {scheduled, in_stream, failed, completed, other, outbox}. If all are 0 and `look` is 0, the keys are gone.
--            scheduled, failed, completed   number of jobs in the state with this name
--            in_stream                      number of ready and reserved jobs
--            other                          number of jobs in no state; above 0 only if the data is damaged
--            outbox                         number of outbox records
-- COST     O(rows in the deleted keys), mostly in `activity`, with at most 1,441 rows
--
-- The set `delayq:queues` is in another Cluster slot, so the script cannot change it. Remove the name of the queue from
-- the set before you call the script with `look` = 0. If a number of the reply is not 0, a producer has stored a job in
-- between: add the name to the set again.
--
-- All settings in `meta` and all windows of unique keys are deleted too. If the queue is used again, its new entry ids
-- are higher than the old ones, unless the clock of the server has gone back.

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
}
local is_empty = true
for _, held in ipairs(holds) do
  is_empty = is_empty and held == 0
end
if is_empty and look == 0 then
  redis.call('DEL', unpack(KEYS))
end
return holds
