-- archive: put a job that nobody has taken among the failed, with a reason; it can be retried, forgotten or pruned there.
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
-- KEYS[13] outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended`, `job` and maybe `failure`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  id          text
-- ARGV[3]  failure     text    JSON without its closing brace
-- ARGV[4]  once_ms     int     how long the answer is kept for a resend
-- ARGV[5]  queue       text    its name, for the hint
-- ARGV[6]  wake        text    channel; told `queue now_ms` when a relay has something to carry
-- returns  {answer}: archived, running, failed, finished or unknown; with `archived` also the envelope, if anything
--          follows its end
-- cost     O(log n)
--
-- Why an entry counts as delivered by its id and not by the pending list: see cancel.
-- Why earlier failures go into `history` as text: see reclaim. Recoveries stay, as in fail.
-- Why an envelope's text is searched, and a hint that cannot be sent is no error: see cancel.

local scheduled, jobs, stream, entries, failed, completed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local errors, cancel, unique, locks, meta, once, outbox = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local now, id, failure, once_ms = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local first = redis.call('GET', once)
if first then return { first } end
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
for _, key in ipairs({ jobs, errors, cancel, unique, locks, meta }) do redis.call('HLEN', key) end
for _, key in ipairs({ failed, completed }) do redis.call('ZCARD', key) end
redis.call('XLEN', outbox)
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
local job = redis.call('HGET', jobs, id)
local due, entry = redis.call('ZSCORE', scheduled, id), redis.call('HGET', entries, id)
if entry and delivered(entry) then return { 'running' } end
if not entry and not due then
  if redis.call('ZSCORE', failed, id) then return { 'failed' } end
  return { redis.call('ZSCORE', completed, id) and 'finished' or 'unknown' }
end
if not job then return { 'unknown' } end

local at, told = string.format('%.0f', now), nil
local before = redis.call('HGET', errors, id)
local history = before and ',"history":[' .. before .. ']' or ''
local record = failure .. ',"at_ms":' .. at .. history .. '}'
redis.call('ZREM', scheduled, id)
if string.find(job, '"chain":', 1, true) or string.find(job, '"batch":', 1, true) then
  redis.call('XADD', outbox, '*', 'ended', 'failed', 'job', job, 'failure', record)
  redis.pcall('PUBLISH', ARGV[6] or '', (ARGV[5] or '') .. ' ' .. at)
  told = job
end
if entry then redis.call('XDEL', stream, entry) end
for _, key in ipairs({ entries, cancel }) do redis.call('HDEL', key, id) end
redis.call('ZADD', failed, at, id)
redis.call('HSET', errors, id, record)
local digest = redis.call('HGET', locks, id)
if digest and redis.call('HGET', unique, digest) == id then redis.call('HDEL', unique, digest) end
redis.call('HDEL', locks, id)
redis.pcall('HINCRBY', meta, 'failed_total', 1)
redis.call('SET', once, 'archived', 'PX', once_ms)
return { 'archived', told }
