-- reschedule: give a job that nobody has taken a new due time.
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
-- ARGV[3]  wake        text    channel
-- ARGV[4]  id          text
-- ARGV[5]  when        text    '+delay_ms' or due_ms; past = now
-- returns  {answer, due_ms or ''}: rescheduled, running, failed, finished or unknown
-- cost     O(log n)
--
-- Why it ends a wish to stop, which a job handed back still has: whoever gives it a new time wants it to run then.
-- Why ZADD comes first: it is the write that grows, so a full server refuses the whole call.

local scheduled, stream, entries, failed, completed, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local cancel = KEYS[7]
local now, queue, wake, id, when = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local due = (tonumber(when) or 0 / 0) + (string.sub(when, 1, 1) == '+' and now or 0)
if not (math.abs(due) <= 9007199254740991) then
  return redis.error_reply('ERR when is +delay_ms or due_ms, up to 2^53 - 1, not ' .. when)
end
for _, key in ipairs({ failed, completed }) do redis.call('ZCARD', key) end
for _, key in ipairs({ meta, cancel }) do redis.call('HLEN', key) end
local present = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1

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
if entry and delivered(entry) then return { 'running', '' } end
if not entry and not redis.call('ZSCORE', scheduled, id) then
  if redis.call('ZSCORE', failed, id) then return { 'failed', '' } end
  return { redis.call('ZSCORE', completed, id) and 'finished' or 'unknown', '' }
end
due = math.max(due, now)
local at = string.format('%.0f', due)
local head_due = tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2] or math.huge)
redis.call('ZADD', scheduled, at, id)
if entry then
  redis.call('XDEL', stream, entry)
  for _, key in ipairs({ entries, cancel }) do redis.call('HDEL', key, id) end
end
if due < head_due then redis.call('PUBLISH', wake, queue .. ' ' .. at) end
return { 'rescheduled', at }
