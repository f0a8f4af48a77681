-- cancel: a job that nobody has taken will not run; one that runs is asked to stop when that is wanted.
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
-- KEYS[14] outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended` and `job`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  id          text
-- ARGV[3]  running     0|1     1 = ask a running job to stop
-- ARGV[4]  once_ms     int     0 = a resend may be answered anew
-- ARGV[5]  queue       text    its name, for the hint
-- ARGV[6]  hint        text    channel; told `queue id` when a running job is asked to stop
-- ARGV[7]  only        text    a job whose envelope does not hold this is left alone, as unknown; '' = any job
-- ARGV[8]  wake        text    channel; told `queue now_ms` when a relay has something to carry
-- returns  {answer}: cancelled, running, failed, finished or unknown; with `cancelled` also the envelope, if anything
--          follows its end
-- cost     O(log n)
--
-- Why an entry counts as delivered by its id and not by the pending list: a worker that acknowledged early, or whose
-- consumer was deleted, may be running it all the same, and "cancelled" must mean that nobody will.
-- Why a hint that cannot be sent is no error: the worker reads the wish with its next renewal, and a mover looks now and
-- then for what is owed.
-- Why an envelope's text is searched: what follows its job has to hear of this end, and a relay reads it. A payload that
-- holds these words by chance costs the relay a look.
-- Why `only`: who cancels a batch must not touch a job of somebody else that has taken a member's id.
-- Why the envelope: who cancels tells its batch, which else would hear of it when somebody serves this queue.
-- Why only that answer is kept: whatever else is answered was not this call's doing, and a resend may find better news.

local scheduled, jobs, stream, entries, failed, completed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local recoveries, errors, cancel, unique, locks, meta, once = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local outbox = KEYS[14]
local now, id, running, once_ms = tonumber(ARGV[1]), ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local first = once_ms > 0 and redis.call('GET', once)
if first then return { first } end
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
for _, key in ipairs({ jobs, recoveries, errors, cancel, unique, locks, meta }) do redis.call('HLEN', key) end
for _, key in ipairs({ failed, completed }) do redis.call('ZCARD', key) end
redis.call('XLEN', outbox)
local job, told = redis.call('HGET', jobs, id) or '', nil
if ARGV[7] and not string.find(job, ARGV[7], 1, true) then return { 'unknown' } end
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
local due, entry = redis.call('ZSCORE', scheduled, id), redis.call('HGET', entries, id)
local answer
if entry and delivered(entry) then
  answer = 'running'
  if running then
    redis.call('HSET', cancel, id, string.format('%.0f', now))
    redis.pcall('PUBLISH', ARGV[6] or '', (ARGV[5] or '') .. ' ' .. id)
  end
elseif entry or due then
  answer = 'cancelled'
  redis.call('ZREM', scheduled, id)
  if string.find(job, '"chain":', 1, true) or string.find(job, '"batch":', 1, true) then
    redis.call('XADD', outbox, '*', 'ended', 'cancelled', 'job', job)
    redis.pcall('PUBLISH', ARGV[8] or '', (ARGV[5] or '') .. ' ' .. string.format('%.0f', now))
    told = job
  end
  if entry then redis.call('XDEL', stream, entry) end
  for _, key in ipairs({ entries, jobs, recoveries, errors, cancel }) do redis.call('HDEL', key, id) end
  local digest = redis.call('HGET', locks, id)
  if digest and redis.call('HGET', unique, digest) == id then redis.call('HDEL', unique, digest) end
  redis.call('HDEL', locks, id)
  redis.pcall('HINCRBY', meta, 'cancelled_total', 1)
  if once_ms > 0 then redis.call('SET', once, answer, 'PX', once_ms) end
elseif redis.call('ZSCORE', failed, id) then
  answer = 'failed'
else
  answer = redis.call('ZSCORE', completed, id) and 'finished' or 'unknown'
end
return { answer, told }
