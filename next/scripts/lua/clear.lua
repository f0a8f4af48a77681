-- clear: drop what waits in a queue: everything scheduled, and what is ready but not yet delivered.
--
-- MOVES  scheduled -> absent, ready -> absent
--
-- KEYS   scheduled   zset    id -> due, epoch ms
-- KEYS   jobs        hash    id -> envelope
-- KEYS   stream      stream  group `delayq`
-- KEYS   entries     hash    id -> entry id, while the job is in the stream
-- KEYS   recoveries  hash    id -> times its worker vanished
-- KEYS   errors      hash    id -> failure, JSON
-- KEYS   unique      hash    digest -> id of its owner
-- KEYS   locks       hash    id -> digest
-- KEYS   meta        hash    delivered
-- KEYS   cancel      hash    id -> asked to stop at, epoch ms
-- KEYS   outbox      stream  ends of jobs, for the relay
--
-- ARGV   limit       int     jobs at most, 1..500
-- ARGV   queue       text    its name, for the wake-up
-- ARGV   wake        text    channel; gets `queue 0` when the relay has something to relay
--
-- RETURNS  the number dropped; call again until it is 0
-- COST     O(limit * log n); 1 MB of payload, but one job at least
--
-- What is reserved runs on, also when damage put the same id among what waits.

-- include: last_delivered
-- include: leave_follow_up
-- include: wake_relay
-- include: free_locks

local max_bytes = 1000000
local max_chunk = 16

-- 1. Choose: first what is scheduled, then what is ready.

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

-- Entries are read in chunks as large as the largest entry so far allows. Those above `last` are ready.
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

-- 2. Take them out. ZREM comes first: a server at its memory limit allows it, and then the rest of the script.

redis.call('ZREM', scheduled, unpack(ids))
if #gone > 0 then
  redis.call('XDEL', stream, unpack(gone))
  redis.call('HDEL', entries, unpack(ids, scheduled_count + 1))
end

-- 3. Forget them.

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
