-- run_now: end a job's wait; it is due now.
--
-- moves    scheduled -> ready; scheduled -> scheduled, due now, when the queue is paused, its stream is full or gone
-- KEYS[1]  scheduled   zset    id -> due_ms
-- KEYS[2]  jobs        hash    id -> envelope
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  recoveries  hash    id -> times its worker vanished
-- KEYS[6]  failed      zset    id -> failed at
-- KEYS[7]  completed   zset    id -> forget at
-- KEYS[8]  meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  queue       text    its name, for the wake-up
-- ARGV[3]  wake        text    channel of the wake-up
-- ARGV[4]  high_water  int     entries the stream may hold
-- ARGV[5]  id          text
-- returns  {answer, due_ms or ''}: ready, scheduled, running, failed, finished or unknown
-- cost     O(log n)

local scheduled = KEYS[1]
local jobs = KEYS[2]
local stream = KEYS[3]
local entries = KEYS[4]
local recoveries = KEYS[5]
local failed = KEYS[6]
local completed = KEYS[7]
local meta = KEYS[8]

local now = tonumber(ARGV[1])
local queue = ARGV[2]
local wake = ARGV[3]
local high_water = tonumber(ARGV[4])
local id = ARGV[5]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Read every key, so that one of the wrong type raises its error before the first write.
for _, key in ipairs({ jobs, recoveries, meta }) do
  redis.call('HLEN', key)
end
redis.call('ZCARD', failed)
redis.call('ZCARD', completed)
local held = redis.call('XLEN', stream)
local has_stream = held > 0 or redis.call('EXISTS', stream) == 1

-- Pads both numbers of an entry id with zeros, so that ids compare as text.
local function pad(entry_id)
  return (string.gsub(entry_id, '%d+', function(digits)
    return string.rep('0', 20 - #digits) .. digits
  end))
end

-- Without the group, or with one that was set back, every entry counts as delivered: a worker may hold it.
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

local entry = redis.call('HGET', entries, id)
if entry then
  return { is_delivered(entry) and 'running' or 'ready', '' }
end
local due = redis.call('ZSCORE', scheduled, id)
if not due then
  if redis.call('ZSCORE', failed, id) then
    return { 'failed', '' }
  end
  return { redis.call('ZSCORE', completed, id) and 'finished' or 'unknown', '' }
end

-- A job that goes on waiting is due now. Without a stream it waits too: only schedule, promote and tidy make one.
local at = string.format('%.0f', now)
local paused_until = redis.call('HGET', meta, 'paused_until_ms')
local is_paused = paused_until and (paused_until == '0' or tonumber(paused_until) > now)
local envelope = redis.call('HGET', jobs, id)
if is_paused or not has_stream or held >= high_water or not envelope then
  local head_due = tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2])
  redis.call('ZADD', scheduled, at, id)
  if now < head_due then
    redis.call('PUBLISH', wake, queue .. ' ' .. at)
  end
  return { 'scheduled', at }
end

-- A job that goes into the stream keeps the time since which it has been late.
if tonumber(due) >= 0 then
  at = string.format('%.0f', math.min(now, tonumber(due)))
end
local times = redis.call('HGET', recoveries, id) or '0'
-- XADD comes first: it grows, so a server at its memory limit refuses the whole call.
local fresh = redis.call('XADD', stream, '*', 'id', id, 'job', envelope, 'due', at, 'recoveries', times)
redis.call('HSET', entries, id, fresh)
redis.call('ZREM', scheduled, id)
return { 'ready', at }
