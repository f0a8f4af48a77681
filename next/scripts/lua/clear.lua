-- clear: Delete the scheduled and the ready jobs of a queue.
--
-- MOVES  scheduled -> absent, ready -> absent
--
-- KEYS   scheduled   zset    id -> due time, epoch ms
-- KEYS   jobs        hash    id -> envelope JSON
-- KEYS   stream      stream  entries of ready and reserved jobs; consumer group `delayq`
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   recoveries  hash    id -> number of times its worker vanished
-- KEYS   errors      hash    id -> failure JSON
-- KEYS   unique      hash    digest -> id of the job that owns the unique key
-- KEYS   locks       hash    id -> digest of the job's unique key
-- KEYS   meta        hash    field delivered
-- KEYS   cancel      hash    id -> time of the stop request, epoch ms
-- KEYS   outbox      stream  job-end records for the relay
--
-- ARGV   limit       int     maximum number of jobs, 1..500
-- ARGV   queue       text    name of the queue, for the wake-up
-- ARGV   wake        text    pub/sub channel that wakes movers; receives `<queue> 0` if the outbox has a new record
--
-- RETURNS  The number of deleted jobs. Call again until it is 0.
-- COST     O(limit * log n), where n is the number of scheduled jobs; reads up to 1 MB of envelopes, but at least one
--          envelope
--
-- Reserved jobs continue to run, even if damaged data also has them in `scheduled`.

-- include: last_delivered
-- include: leave_follow_up
-- include: wake_relay
-- include: free_locks

local max_bytes = 1000000
local max_chunk = 16

-- 1. Choose the jobs, scheduled ones first, then ready ones.

local ids = {}
local bytes = 0
for _, id in ipairs(redis.call('ZRANGE', scheduled, 0, limit - 1)) do
  bytes = bytes + redis.call('HSTRLEN', jobs, id)
  if bytes > max_bytes and #ids > 0 then
    break
  end
  ids[#ids + 1] = id
end
local scheduled_count = #ids

-- Entries after `last` are ready. They are read in chunks, which are small if a large entry was seen before.
local last = last_delivered(stream, redis.call('HGET', meta, 'delivered'))
local gone = {}
local largest = 0
while last and #ids < limit and bytes < max_bytes do
  local chunk = 1
  if largest > 0 then
    chunk = math.max(1, math.min(max_chunk, limit - #ids, math.floor((max_bytes - bytes) / largest)))
  end
  local page = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', chunk)
  for _, row in ipairs(page) do
    local fields = {}
    local size = 100
    for n = 1, #row[2], 2 do
      fields[row[2][n]] = row[2][n + 1]
      size = size + #row[2][n + 1]
    end
    bytes = bytes + size
    largest = math.max(largest, size)
    last = row[1]
    if fields['id'] and redis.call('HGET', entries, fields['id']) == last then
      ids[#ids + 1] = fields['id']
      gone[#gone + 1] = last
    end
  end
  if #page == 0 then
    break
  end
end
if #ids == 0 then
  return 0
end

-- 2. Remove the jobs from their states. ZREM comes first: after it, Redis permits later writes even when it is full.

redis.call('ZREM', scheduled, unpack(ids))
if #gone > 0 then
  redis.call('XDEL', stream, unpack(gone))
  redis.call('HDEL', entries, unpack(ids, scheduled_count + 1))
end

-- 3. Record the ends of jobs that are in a chain or a batch, and delete all jobs.

local owes = false
for _, id in ipairs(ids) do
  local envelope = redis.call('HGET', jobs, id) or ''
  owes = leave_follow_up(outbox, 'cancelled', envelope, '') or owes
end
if owes then
  wake_relay(wake, queue, '0')
end
for _, key in ipairs({ jobs, recoveries, errors, cancel }) do
  redis.call('HDEL', key, unpack(ids))
end
free_locks(unique, locks, ids)
return #ids
