-- reschedule: give a job that no worker has taken a new due time.
--
-- moves    scheduled -> scheduled, ready -> scheduled
-- KEYS[1]  scheduled   zset    id -> due_ms
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  entries     hash    id -> entry id
-- KEYS[4]  failed      zset    id -> failed at
-- KEYS[5]  completed   zset    id -> forget at
-- KEYS[6]  meta        hash
-- KEYS[7]  cancel      hash    id -> asked at
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  queue       text    its name, for the wake-up
-- ARGV[3]  wake        text    channel of the wake-up
-- ARGV[4]  id          text
-- ARGV[5]  when        text    '+delay_ms' or due_ms; past = now
-- returns  {answer, due_ms or ''}: rescheduled, running, failed, finished or unknown
-- cost     O(log n)

local scheduled = KEYS[1]
local stream = KEYS[2]
local entries = KEYS[3]
local failed = KEYS[4]
local completed = KEYS[5]
local meta = KEYS[6]
local cancel = KEYS[7]

local now = tonumber(ARGV[1])
local queue = ARGV[2]
local wake = ARGV[3]
local id = ARGV[4]
local when = ARGV[5]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local due = (tonumber(when) or 0 / 0) + (string.sub(when, 1, 1) == '+' and now or 0)
if not (math.abs(due) <= 9007199254740991) then
  return redis.error_reply('ERR when is +delay_ms or due_ms, up to 2^53 - 1, not ' .. when)
end

-- Read every key, so that one of the wrong type raises its error before the first write.
redis.call('ZCARD', failed)
redis.call('ZCARD', completed)
redis.call('HLEN', meta)
redis.call('HLEN', cancel)
local has_stream = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1

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
if entry and is_delivered(entry) then
  return { 'running', '' }
end
if not entry and not redis.call('ZSCORE', scheduled, id) then
  if redis.call('ZSCORE', failed, id) then
    return { 'failed', '' }
  end
  return { redis.call('ZSCORE', completed, id) and 'finished' or 'unknown', '' }
end

due = math.max(due, now)
local at = string.format('%.0f', due)
local head_due = tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2] or math.huge)
-- ZADD comes first: it grows, so a server at its memory limit refuses the whole call.
redis.call('ZADD', scheduled, at, id)
if entry then
  redis.call('XDEL', stream, entry)
  redis.call('HDEL', entries, id)
  -- A job that was handed back still has a wish to stop. A new due time withdraws it.
  redis.call('HDEL', cancel, id)
end
if due < head_due then
  redis.call('PUBLISH', wake, queue .. ' ' .. at)
end
return { 'rescheduled', at }
