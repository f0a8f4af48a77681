-- clear: drop what waits in a queue: everything scheduled, and what is ready but not yet delivered.
--
-- moves    scheduled -> absent, ready -> absent
-- KEYS[1]  scheduled   zset    id -> due_ms
-- KEYS[2]  jobs        hash    id -> envelope
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  recoveries  hash    id -> times its worker vanished
-- KEYS[6]  errors      hash    id -> failure
-- KEYS[7]  unique      hash    digest -> owning id
-- KEYS[8]  locks       hash    id -> digest
-- KEYS[9]  meta        hash
-- KEYS[10] cancel      hash    id -> asked at
-- KEYS[11] outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended` and `job`
-- ARGV[1]  limit       int     jobs at most, 1..500
-- ARGV[2]  queue       text    its name, for the wake-up
-- ARGV[3]  wake        text    channel; gets `queue 0` when a relay has something to carry
-- returns  the number dropped; call again until it is 0
-- cost     O(limit * log n); 1 MB of payload, but one job at least
--
-- What is reserved runs on, also when damage put the same id among what waits.

local scheduled = KEYS[1]
local jobs = KEYS[2]
local stream = KEYS[3]
local entries = KEYS[4]
local recoveries = KEYS[5]
local errors = KEYS[6]
local unique = KEYS[7]
local locks = KEYS[8]
local meta = KEYS[9]
local cancel = KEYS[10]
local outbox = KEYS[11]
local limit = tonumber(ARGV[1])

-- Read every key, so that one of the wrong type raises its error before the first write.
redis.call('XLEN', stream)
redis.call('XLEN', outbox)
for _, key in ipairs({ jobs, entries, recoveries, errors, unique, locks, cancel }) do
  redis.call('HLEN', key)
end

-- Pads both numbers of an entry id with zeros, so that ids compare as text.
local function pad(entry_id)
  return (string.gsub(entry_id, '%d+', function(digits)
    return string.rep('0', 20 - #digits) .. digits
  end))
end

-- The entries above `last` are ready. Without the group, or with one that was set back, none is.
local last = nil
for _, group in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  local info = {}
  for i = 1, #group, 2 do
    info[group[i]] = group[i + 1]
  end
  if info.name == 'delayq' then
    last = info['last-delivered-id']
  end
end
local top = redis.call('HGET', meta, 'delivered')
if last and top and pad(last) < pad(top) then
  last = nil
end

local ids = {}
local bytes = 0
for _, id in ipairs(redis.call('ZRANGE', scheduled, 0, limit - 1)) do
  bytes = bytes + redis.call('HSTRLEN', jobs, id)
  if bytes > 1000000 and #ids > 0 then
    break
  end
  ids[#ids + 1] = id
end
local waiting = #ids

-- Read entries in chunks as large as the largest entry so far allows.
local gone = {}
local largest = 0
while last and #ids < limit and bytes < 1000000 do
  local chunk = 1
  if largest > 0 then
    chunk = math.max(1, math.min(16, limit - #ids, math.floor((1000000 - bytes) / largest)))
  end
  local page = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', chunk)
  for _, row in ipairs(page) do
    local fields = {}
    local size = 100
    for i = 1, #row[2], 2 do
      fields[row[2][i]] = row[2][i + 1]
      size = size + #row[2][i + 1]
    end
    bytes = bytes + size
    largest = math.max(largest, size)
    last = row[1]
    if fields.id and redis.call('HGET', entries, fields.id) == last then
      ids[#ids + 1] = fields.id
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

redis.call('ZREM', scheduled, unpack(ids))
if #gone > 0 then
  redis.call('XDEL', stream, unpack(gone))
  redis.call('HDEL', entries, unpack(ids, waiting + 1))
end

-- A job with a chain or a batch has follow-ups; a relay reads the envelope in the outbox. A payload that holds these
-- words by chance costs the relay a look. A wake-up that cannot be sent is no error: movers look now and then.
local owed = false
for _, id in ipairs(ids) do
  local job = redis.call('HGET', jobs, id) or ''
  if string.find(job, '"chain":', 1, true) or string.find(job, '"batch":', 1, true) then
    redis.call('XADD', outbox, '*', 'ended', 'cancelled', 'job', job)
    owed = true
  end
end
if owed then
  redis.pcall('PUBLISH', ARGV[3] or '', (ARGV[2] or '') .. ' 0')
end

for _, key in ipairs({ jobs, recoveries, errors, cancel }) do
  redis.call('HDEL', key, unpack(ids))
end
for _, id in ipairs(redis.call('HLEN', locks) > 0 and ids or {}) do
  local digest = redis.call('HGET', locks, id)
  if digest and redis.call('HGET', unique, digest) == id then
    redis.call('HDEL', unique, digest)
  end
  redis.call('HDEL', locks, id)
end
return #ids
