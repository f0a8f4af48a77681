-- cancel: take back a job that no worker has taken. A running job is asked to stop, if the caller wants that.
--
-- moves    scheduled -> absent, ready -> absent
-- KEYS[1]  scheduled   zset    id -> due_ms
-- KEYS[2]  jobs        hash    id -> envelope
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  failed      zset    id -> failed at
-- KEYS[6]  completed   zset    id -> forget at
-- KEYS[7]  recoveries  hash    id -> times its worker vanished
-- KEYS[8]  errors      hash    id -> failure
-- KEYS[9]  cancel      hash    id -> asked at
-- KEYS[10] unique      hash    digest -> owning id
-- KEYS[11] locks       hash    id -> digest
-- KEYS[12] meta        hash
-- KEYS[13] once        string  kept when once_ms > 0 and the answer is cancelled
-- KEYS[14] outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended` and `job`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  id          text
-- ARGV[3]  running     0|1     1 = ask a running job to stop
-- ARGV[4]  once_ms     int     how long to keep the answer for a resend; 0 = do not keep it
-- ARGV[5]  queue       text    its name, for the hint
-- ARGV[6]  hint        text    channel; gets `queue id` when a running job is asked to stop
-- ARGV[7]  only        text    a job whose envelope does not hold this text is left alone, as unknown; '' = any job
-- ARGV[8]  wake        text    channel; gets `queue now_ms` when a relay has something to carry
-- returns  {answer}: cancelled, running, failed, finished or unknown; with `cancelled` also the envelope, if anything
--          follows the job
-- cost     O(log n)

local scheduled = KEYS[1]
local jobs = KEYS[2]
local stream = KEYS[3]
local entries = KEYS[4]
local failed = KEYS[5]
local completed = KEYS[6]
local recoveries = KEYS[7]
local errors = KEYS[8]
local cancel = KEYS[9]
local unique = KEYS[10]
local locks = KEYS[11]
local meta = KEYS[12]
local once = KEYS[13]
local outbox = KEYS[14]

local now = tonumber(ARGV[1])
local id = ARGV[2]
local ask_running = ARGV[3] == '1'
local once_ms = tonumber(ARGV[4])

local first = once_ms > 0 and redis.call('GET', once)
if first then
  return { first }
end
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Read every key, so that one of the wrong type raises its error before the first write.
for _, key in ipairs({ jobs, recoveries, errors, cancel, unique, locks, meta }) do
  redis.call('HLEN', key)
end
redis.call('ZCARD', failed)
redis.call('ZCARD', completed)
redis.call('XLEN', outbox)
local job = redis.call('HGET', jobs, id) or ''
-- A caller that cancels a batch must not touch another job that has taken a member's id.
if ARGV[7] and not string.find(job, ARGV[7], 1, true) then
  return { 'unknown' }
end
local has_stream = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1

-- Pads both numbers of an entry id with zeros, so that ids compare as text.
local function pad(entry_id)
  return (string.gsub(entry_id, '%d+', function(digits)
    return string.rep('0', 20 - #digits) .. digits
  end))
end

-- An entry counts as delivered by its id, not by the list of pending entries. A worker that acknowledged early, or
-- whose consumer was deleted, may still run it, and `cancelled` promises that the job will not run. Without the group,
-- or with one that was set back, every entry counts as delivered.
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

local due = redis.call('ZSCORE', scheduled, id)
local entry = redis.call('HGET', entries, id)
local answer = nil
local followed = nil
if entry and is_delivered(entry) then
  answer = 'running'
  if ask_running then
    redis.call('HSET', cancel, id, string.format('%.0f', now))
    -- A hint that cannot be sent is no error: the worker reads the wish when it renews its lease.
    redis.pcall('PUBLISH', ARGV[6] or '', (ARGV[5] or '') .. ' ' .. id)
  end
elseif entry or due then
  answer = 'cancelled'
  redis.call('ZREM', scheduled, id)
  -- A job with a chain or a batch has follow-ups; a relay reads the envelope in the outbox. A payload that holds these
  -- words by chance costs the relay a look. The caller gets the envelope too, and can tell the batch at once.
  if string.find(job, '"chain":', 1, true) or string.find(job, '"batch":', 1, true) then
    redis.call('XADD', outbox, '*', 'ended', 'cancelled', 'job', job)
    redis.pcall('PUBLISH', ARGV[8] or '', (ARGV[5] or '') .. ' ' .. string.format('%.0f', now))
    followed = job
  end
  if entry then
    redis.call('XDEL', stream, entry)
  end
  for _, key in ipairs({ entries, jobs, recoveries, errors, cancel }) do
    redis.call('HDEL', key, id)
  end
  local digest = redis.call('HGET', locks, id)
  if digest and redis.call('HGET', unique, digest) == id then
    redis.call('HDEL', unique, digest)
  end
  redis.call('HDEL', locks, id)
  redis.pcall('HINCRBY', meta, 'cancelled_total', 1)
  -- Only this answer is kept. Any other was not the doing of this call, and a resend may find better news.
  if once_ms > 0 then
    redis.call('SET', once, answer, 'PX', once_ms)
  end
elseif redis.call('ZSCORE', failed, id) then
  answer = 'failed'
else
  answer = redis.call('ZSCORE', completed, id) and 'finished' or 'unknown'
end
return { answer, followed }
