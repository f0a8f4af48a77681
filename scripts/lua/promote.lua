-- promote: append the jobs that are due to the stream, oldest first.
--
-- moves    scheduled -> ready; a job whose payload is lost: scheduled -> failed
-- KEYS[1]  scheduled   zset    id -> due_ms
-- KEYS[2]  jobs        hash    id -> envelope
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  recoveries  hash    id -> times its worker vanished
-- KEYS[6]  failed      zset    id -> failed at
-- KEYS[7]  errors      hash    id -> failure
-- KEYS[8]  unique      hash    digest -> owning id
-- KEYS[9]  locks       hash    id -> digest
-- KEYS[10] completed   zset    id -> forget at
-- KEYS[11] meta        hash
-- KEYS[12] outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended` and `job`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  limit       int     jobs at most, 1..500
-- ARGV[3]  high_water  int     entries the stream may hold
-- ARGV[4]  queue       text    its name, for the stub of a lost payload
-- ARGV[5]  lost        json    the failure written for a lost payload, without its closing brace
-- returns  {promoted, lost, wait_us, owed}; wait_us: microseconds until the next job is due, 0 = call again, -1 = no
--          job waits, -2 = the stream is full, -3 = the queue is paused; owed: entries of the outbox, for a relay
-- cost     O(limit * log n), 1 MB of payload at most, but one job at least

local scheduled = KEYS[1]
local jobs = KEYS[2]
local stream = KEYS[3]
local entries = KEYS[4]
local recoveries = KEYS[5]
local failed = KEYS[6]
local errors = KEYS[7]
local unique = KEYS[8]
local locks = KEYS[9]
local completed = KEYS[10]
local meta = KEYS[11]
local outbox = KEYS[12]

local call = redis.call
local now = tonumber(ARGV[1])
local limit = tonumber(ARGV[2])
local high_water = tonumber(ARGV[3])
local queue = ARGV[4]
local lost_failure = ARGV[5]
local past_us = 0 -- microseconds since `now`
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
  past_us = time[2] % 1000
end
local at = string.format('%.0f', now)

-- Read the queue. This touches every key, so that one of the wrong type raises its error before the first write.
local known = call('HMGET', meta, 'paused_until_ms', 'delivered')
local delivered = known[2] -- the highest entry id that was ever delivered
local paused_until = known[1] and #known[1] <= 15 and string.match(known[1], '^%d+$') and tonumber(known[1])
local is_paused = paused_until and (paused_until == 0 or paused_until > now)
call('HLEN', errors)
call('HLEN', unique)
call('HLEN', locks)
local owed = call('XLEN', outbox)
local held = call('XLEN', stream)
local outstanding = call('HLEN', entries)
local has_recoveries = call('HLEN', recoveries) > 0
local kept = call('ZCARD', scheduled) + outstanding + call('ZCARD', failed) + call('ZCARD', completed)
local is_damaged = kept ~= call('HLEN', jobs)
local room = is_paused and 0 or math.max(0, math.min(limit, high_water - held))

local due = call('ZRANGE', scheduled, '-inf', at, 'BYSCORE', 'LIMIT', '0', room, 'WITHSCORES')
local ids = {}
local most = #due / 2
for n = 1, most do
  ids[n] = due[2 * n - 1]
end

-- Read payloads until there are enough jobs or enough bytes. A chunk is as large as the largest payload so far allows:
-- 16 large ones at once would stop the server for long.
local envelopes = {}
local moving = 0
local bytes = 0
local largest = 0
while moving < most and bytes < 1000000 do
  local chunk = 1
  if largest > 0 then
    chunk = math.max(1, math.min(16, math.floor((1000000 - bytes) / largest)))
  end
  for _, envelope in ipairs(call('HMGET', jobs, unpack(ids, moving + 1, math.min(moving + chunk, most)))) do
    local size = envelope and #envelope or 0
    bytes = bytes + size
    if size > largest then
      largest = size
    end
    if bytes > 1000000 and moving > 0 then
      break
    end
    moving = moving + 1
    envelopes[moving] = envelope
  end
end

-- The first write is one that frees memory. A server at its memory limit allows it, and then runs the rest of the
-- script. What moves stands in front of the set, so it is removed by rank.
if moving > 0 then
  call('ZREMRANGEBYRANK', scheduled, '0', moving - 1)
else
  call('HDEL', meta, '')
end
call('HSET', meta, 'mover_tick', at)
if is_paused then
  return { 0, 0, -3, owed }
end

if moving > 0 and held == 0 and call('EXISTS', stream) == 0 then
  call('XGROUP', 'CREATE', stream, 'delayq', '0', 'MKSTREAM')
  -- After a stream that was deleted, the new one starts with the next second (see schedule).
  if delivered or outstanding > 0 then
    local next_second = (call('TIME')[1] + 1) * 1000
    delivered = string.format('%.0f-0', math.max(next_second, tonumber(string.match(delivered or '0', '%d+')) + 1))
    call('XSETID', stream, delivered)
    call('XGROUP', 'SETID', stream, 'delayq', '$')
    call('HSET', meta, 'delivered', delivered)
  end
end

-- Only damage puts a job in two places. One that has an entry gets no second one, because a worker may hold the first.
local entry_of = is_damaged and moving > 0 and call('HMGET', entries, unpack(ids, 1, moving)) or {}
local recoveries_of = has_recoveries and moving > 0 and call('HMGET', recoveries, unpack(ids, 1, moving)) or {}

-- How late the jobs are is counted in 19 classes with the bounds of `activity`, in ms. Jobs come oldest first, so the
-- class only goes down. Jobs of one call fell due together, so one or two classes grow.
local bounds = { 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 3e5, 3.6e6 }
local class = 19
local counts = {}
local late = 0
local late_sum = 0
local last_due = nil
local exact_now = now + past_us / 1000

local placed = {} -- id, entry id, id, entry id …
local filled = 0
local lost = 0
for n = 1, moving do
  local id = ids[n]
  local envelope = envelopes[n]
  local due_text = due[2 * n]
  -- A time before 1970 counts as now. No client writes one, and a lateness of decades would hide all others.
  if string.byte(due_text) == 45 then -- '-'
    due_text = at
  end
  if not entry_of[n] and envelope then
    placed[filled + 1] = id
    placed[filled + 2] =
      call('XADD', stream, '*', 'id', id, 'job', envelope, 'due', due_text, 'recoveries', recoveries_of[n] or '0')
    filled = filled + 2
    if due_text ~= last_due then
      last_due = due_text
      late = math.max(0, exact_now - due_text)
      while class > 1 and late <= bounds[class - 1] do
        class = class - 1
      end
    end
    counts[class] = (counts[class] or 0) + 1
    late_sum = late_sum + late
  elseif not entry_of[n] then
    -- The payload is lost: the job is kept among the failed, with a stub in place of its envelope.
    lost = lost + 1
    call('HSET', jobs, id, '{"v":1,"id":' .. cjson.encode(id) .. ',"name":"delayq.lost","queue":"' .. queue
      .. '","data":null,"attempts":0,"created_ms":0}')
    call('ZADD', failed, at, id)
    local before = call('HGET', errors, id) or ''
    if not string.match(before, '^{.*}$') then -- a record that is no object has no place in a history
      before = ''
    end
    call('HSET', errors, id, lost_failure .. ',"at_ms":' .. at .. ',"history":[' .. before .. ']}')
    local digest = call('HGET', locks, id)
    if digest and call('HGET', unique, digest) == id then
      call('HDEL', unique, digest)
    end
    call('HDEL', locks, id)
  end
end

if filled > 0 then
  call('HSET', entries, unpack(placed))
  redis.pcall('HINCRBY', meta, 'promoted_total', filled / 2)
end
for n, count in pairs(counts) do
  redis.pcall('HINCRBY', meta, 'promoted_late_' .. n, count)
end
if filled > 0 then
  redis.pcall('HINCRBY', meta, 'promoted_late_us', string.format('%.0f', late_sum * 1000))
end
if lost > 0 then
  redis.pcall('HINCRBY', meta, 'failed_total', lost)
end

-- A time beyond all calendars never comes. The wait is cut to 2^53 - 1, the largest whole number that a reply keeps.
local head_due = call('ZRANGE', scheduled, '0', '0', 'WITHSCORES')[2]
local wait_us = -1
if head_due then
  wait_us = math.max(0, math.min(2^53 - 1, (tonumber(head_due) - now) * 1000 - past_us))
end
if wait_us == 0 and moving == 0 then
  wait_us = -2
end
return { filled / 2, lost, wait_us, owed }
