-- queue_remove: forget a queue, or one shard of it, that holds nothing.
--
-- MOVES  nothing
--
-- KEYS   meta        hash
-- KEYS   scheduled   zset    id -> due, epoch ms
-- KEYS   stream      stream  group `delayq`
-- KEYS   failed      zset    id -> failed at, epoch ms
-- KEYS   completed   zset    id -> forget at, epoch ms
-- KEYS   jobs        hash    id -> envelope
-- KEYS   entries     hash    id -> entry id, while the job is in the stream
-- KEYS   outbox      stream  ends of jobs, for the relay
-- KEYS   recoveries  hash    id -> times its worker vanished
-- KEYS   errors      hash    id -> failure, JSON
-- KEYS   results     hash    id -> result, JSON
-- KEYS   unique      hash    digest -> id of its owner
-- KEYS   locks       hash    id -> digest
-- KEYS   cancel      hash    id -> asked to stop at, epoch ms
-- KEYS   progress    hash    id -> last progress report, JSON
-- KEYS   activity    hash    minute -> what happened in it, JSON
-- KEYS   history     hash    day -> what happened on it, JSON
--
-- ARGV   look        int     1 = only count
--
-- RETURNS  {scheduled, entries in the stream, failed, completed, other jobs, follow-ups in the outbox}: what it holds.
--          Nothing is removed unless all of them are 0
-- COST     O(rows of `activity`), which are limited
--
-- The list of queues lies in another slot, so it is not changed here. The caller takes the name off it and calls again,
-- which finds what came in between. Nothing is left of `meta`. A window of a unique key goes with its queue. Entry ids
-- of a queue that is used again are higher than those before, as far as the clock of the server did not go back.

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
