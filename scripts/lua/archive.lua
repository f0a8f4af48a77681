-- archive: put a job that no worker has taken among the failed, with a reason. There it can be retried, forgotten or
-- pruned.
--
-- moves    scheduled -> failed, ready -> failed
-- KEYS[1]  scheduled   zset    id -> due_ms
-- KEYS[2]  jobs        hash    id -> envelope
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  failed      zset    id -> failed at
-- KEYS[6]  completed   zset    id -> forget at
-- KEYS[7]  errors      hash    id -> failure
-- KEYS[8]  cancel      hash    id -> asked at
-- KEYS[9]  unique      hash    digest -> owning id
-- KEYS[10] locks       hash    id -> digest
-- KEYS[11] meta        hash
-- KEYS[12] once        string  kept when the answer is archived
-- KEYS[13] outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended`, `job` and maybe `failure`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  id          text
-- ARGV[3]  failure     text    JSON without its closing brace
-- ARGV[4]  once_ms     int     how long the answer is kept for a resend
-- ARGV[5]  queue       text    its name, for the hint
-- ARGV[6]  wake        text    channel; gets `queue now_ms` when a relay has something to carry
-- returns  {answer}: archived, running, failed, finished or unknown; with `archived` also the envelope, if anything
--          follows the job
-- cost     O(log n)
--
-- The row in `recoveries` stays, as in fail.

local scheduled = KEYS[1]
local jobs = KEYS[2]
local stream = KEYS[3]
local entries = KEYS[4]
local failed = KEYS[5]
local completed = KEYS[6]
local errors = KEYS[7]
local cancel = KEYS[8]
local unique = KEYS[9]
local locks = KEYS[10]
local meta = KEYS[11]
local once = KEYS[12]
local outbox = KEYS[13]

local now = tonumber(ARGV[1])
local id = ARGV[2]
local failure = ARGV[3]
local once_ms = ARGV[4]
local first = redis.call('GET', once)
if first then
  return { first }
end
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Read every key, so that one of the wrong type raises its error before the first write.
for _, key in ipairs({ jobs, errors, cancel, unique, locks, meta }) do
  redis.call('HLEN', key)
end
redis.call('ZCARD', failed)
redis.call('ZCARD', completed)
redis.call('XLEN', outbox)
local has_stream = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1

-- Pads both numbers of an entry id with zeros, so that ids compare as text.
local function pad(entry_id)
  return (string.gsub(entry_id, '%d+', function(digits)
    return string.rep('0', 20 - #digits) .. digits
  end))
end

-- An entry counts as delivered by its id, not by the list of pending entries (see cancel).
local function is_delivered(entry)
  local top = redis.call('HGET', meta, 'delivered')
  for _, group in ipairs(has_stream and redis.call('XINFO', 'GROUPS', stream) or {}) do
    local info = {}
    for i = 1, #group, 2 do
      info[group[i]] = group[i + 1]
    end
    if info.name == 'delayq' then
      local last = pad(info['last-delivered-id'])
      return pad(entry) <= last or (top and last < pad(top))
    end
  end
  return true
end

-- A recorded failure as a history may hold it: at most nine failures, of which the first is never dropped.
local function earlier(before)
  if not (before and string.match(before, '^{.*}$')) then
    return ''
  end
  local _, depth = string.gsub(before, '"history":%[{', '')
  return depth > 8 and string.match(before, ',"history":%[(.*)%]}$') or before
end

local job = redis.call('HGET', jobs, id)
local due = redis.call('ZSCORE', scheduled, id)
local entry = redis.call('HGET', entries, id)
if entry and is_delivered(entry) then
  return { 'running' }
end
if not entry and not due then
  if redis.call('ZSCORE', failed, id) then
    return { 'failed' }
  end
  return { redis.call('ZSCORE', completed, id) and 'finished' or 'unknown' }
end
if not job then
  return { 'unknown' }
end

-- Earlier failures go into the new one's history, as text.
local at = string.format('%.0f', now)
local before = earlier(redis.call('HGET', errors, id))
local history = before ~= '' and ',"history":[' .. before .. ']' or ''
local record = failure .. ',"at_ms":' .. at .. history .. '}'
local followed = nil
redis.call('ZREM', scheduled, id)
-- A job with a chain or a batch has follow-ups; a relay reads the envelope in the outbox. A payload that holds these
-- words by chance costs the relay a look. A wake-up that cannot be sent is no error: movers look now and then.
if string.find(job, '"chain":', 1, true) or string.find(job, '"batch":', 1, true) then
  redis.call('XADD', outbox, '*', 'ended', 'failed', 'job', job, 'failure', record)
  redis.pcall('PUBLISH', ARGV[6] or '', (ARGV[5] or '') .. ' ' .. at)
  followed = job
end
if entry then
  redis.call('XDEL', stream, entry)
end
redis.call('HDEL', entries, id)
redis.call('HDEL', cancel, id)
redis.call('ZADD', failed, at, id)
redis.call('HSET', errors, id, record)
local digest = redis.call('HGET', locks, id)
if digest and redis.call('HGET', unique, digest) == id then
  redis.call('HDEL', unique, digest)
end
redis.call('HDEL', locks, id)
redis.pcall('HINCRBY', meta, 'failed_total', 1)
redis.call('SET', once, 'archived', 'PX', once_ms)
return { 'archived', followed }
