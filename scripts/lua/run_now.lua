-- run_now: a waiting job shall not wait any longer.
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
-- ARGV[3]  wake        text    channel
-- ARGV[4]  high_water  int     entries the stream may hold
-- ARGV[5]  id          text
-- returns  {answer, due_ms or ''}: ready, scheduled, running, failed, finished or unknown
-- cost     O(log n)
--
-- Why XADD comes first: it is the write that grows, so a full server refuses the whole call.
-- Why only a job that waits on is due now: what goes into the stream keeps the time since which it has been late.
-- Why it does not make a stream: only schedule, promote and tidy do, together with the group.

local scheduled, jobs, stream, entries = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local recoveries, failed, completed, meta = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local now, queue, wake, high_water, id = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
for _, key in ipairs({ jobs, recoveries, meta }) do redis.call('HLEN', key) end
for _, key in ipairs({ failed, completed }) do redis.call('ZCARD', key) end
local held = redis.call('XLEN', stream)
local present = held > 0 or redis.call('EXISTS', stream) == 1

local function pad(id)
  return (string.gsub(id, '%d+', function(digits) return string.rep('0', 20 - #digits) .. digits end))
end
local function delivered(entry)
  local top = redis.call('HGET', meta, 'delivered')
  for _, group in ipairs(present and redis.call('XINFO', 'GROUPS', stream) or {}) do
    local is = {}
    for i = 1, #group, 2 do is[group[i]] = group[i + 1] end
    local last = is.name == 'delayq' and pad(is['last-delivered-id'])
    if last then return pad(entry) <= last or (top and last < pad(top)) end
  end
  return true
end
local entry = redis.call('HGET', entries, id)
if entry then return { delivered(entry) and 'running' or 'ready', '' } end
local due = redis.call('ZSCORE', scheduled, id)
if not due then
  if redis.call('ZSCORE', failed, id) then return { 'failed', '' } end
  return { redis.call('ZSCORE', completed, id) and 'finished' or 'unknown', '' }
end
local at = string.format('%.0f', now)
local paused = redis.call('HGET', meta, 'paused_until_ms')
local envelope = redis.call('HGET', jobs, id)
if (paused and (paused == '0' or tonumber(paused) > now)) or not present or held >= high_water or not envelope then
  local head_due = tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2])
  redis.call('ZADD', scheduled, at, id)
  if now < head_due then redis.call('PUBLISH', wake, queue .. ' ' .. at) end
  return { 'scheduled', at }
end
if tonumber(due) >= 0 then at = string.format('%.0f', math.min(now, tonumber(due))) end
local times = redis.call('HGET', recoveries, id) or '0'
local fresh = redis.call('XADD', stream, '*', 'id', id, 'job', envelope, 'due', at, 'recoveries', times)
redis.call('HSET', entries, id, fresh)
redis.call('ZREM', scheduled, id)
return { 'ready', at }
