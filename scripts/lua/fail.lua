-- fail: give a job up and keep it, with the reason, until it is retried, forgotten or pruned.
--
-- moves    reserved -> failed
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  failed      zset    id -> failed at
-- KEYS[4]  jobs        hash    id -> envelope
-- KEYS[5]  errors      hash    id -> failure
-- KEYS[6]  cancel      hash    id -> asked at
-- KEYS[7]  unique      hash    digest -> owning id
-- KEYS[8]  locks       hash    id -> digest
-- KEYS[9]  meta        hash
-- KEYS[10] progress    hash    id -> the job's last progress report
-- KEYS[11] outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended`, `job` and maybe `failure`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2+] delivery    4 each  id, entry id, envelope ('' = unchanged), failure (JSON, '' = unchanged);
--                              one more word may follow the last delivery: `alone` = the caller has read the envelopes,
--                              and nothing follows any of these jobs
-- returns  1 or 0 for each: settled, or fenced (the entry is not this job's any more)
-- cost     O(deliveries * log n); at most 500 and 1 MB a call; the client keeps to that
--
-- The row in `recoveries` stays: it shows how often the job's worker vanished. retry clears it.

local entries = KEYS[1]
local stream = KEYS[2]
local failed = KEYS[3]
local jobs = KEYS[4]
local errors = KEYS[5]
local cancel = KEYS[6]
local unique = KEYS[7]
local locks = KEYS[8]
local meta = KEYS[9]
local progress = KEYS[10]
local outbox = KEYS[11]

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local alone = #ARGV % 4 == 2 and ARGV[#ARGV] == 'alone'
local ids = {}
for i = 2, #ARGV - (alone and 1 or 0), 4 do
  ids[#ids + 1] = ARGV[i]
end
if #ids == 0 then
  return {}
end

-- Read every key, so that one of the wrong type raises its error before the first write.
local owned = redis.call('HMGET', entries, unpack(ids))
for _, key in ipairs({ jobs, errors, cancel, unique, locks, meta, progress }) do
  redis.call('HLEN', key)
end
redis.call('ZCARD', failed)
redis.call('XLEN', stream)
redis.call('XLEN', outbox)
if #ARGV ~= 4 * #ids + (alone and 2 or 1) then
  return redis.error_reply('ERR a delivery is: id, entry id, envelope, failure')
end

-- A job with a chain or a batch has follow-ups. Its envelope goes into the outbox, where a relay reads it. The text is
-- searched and not decoded; a payload that holds these words by chance costs the relay a look.
local function leave_follow_ups(done, gone, reasons)
  local owing = false
  for n, job in ipairs(redis.call('HMGET', jobs, unpack(done))) do
    if not job then -- the payload is lost in `jobs`, and the entry still carries it
      local fields = (redis.call('XRANGE', stream, gone[n], gone[n])[1] or { '', {} })[2]
      for i = 1, #fields, 2 do
        if fields[i] == 'job' then
          job = fields[i + 1]
        end
      end
    end
    if job and (string.find(job, '"chain":', 1, true) or string.find(job, '"batch":', 1, true)) then
      local reason = reasons[n] ~= '' and { 'failure', reasons[n] } or {}
      redis.call('XADD', outbox, '*', 'ended', 'failed', 'job', job, unpack(reason))
      owing = true
    end
  end
  -- Wake a mover, which calls a relay. A wake-up that cannot be sent is no error: movers look now and then.
  local prefix, queue = string.match(entries, '^(.*):{(.*)}:entries$')
  if owing and queue then
    redis.pcall('PUBLISH', prefix .. ':wake', queue .. ' 0')
  end
end

-- Puts the failure before this one into the new one's history (see release).
local function with_history(failure, before)
  if string.find(failure, '"history":[{', 1, true) or not (before and string.match(before, '^{.*}$')) then
    return failure
  end
  failure = string.gsub(failure, ',%s*"history"%s*:%s*%[%s*%]', '')
  failure = string.gsub(failure, '"history"%s*:%s*%[%s*%]%s*,', '')
  local members = string.match(failure, '^%s*({.*[^{%s])%s*}%s*$')
  if not members or string.find(members, '"history"%s*:') then
    return failure
  end
  local _, depth = string.gsub(before, '"history":%[{', '')
  if depth > 8 then
    before = string.match(before, ',"history":%[(.*)%]}$') or before
  end
  return members .. ',"history":[' .. before .. ']}'
end
local before = redis.call('HLEN', errors) > 0 and redis.call('HMGET', errors, unpack(ids)) or {}

local at = string.format('%.0f', now)
local reply = {}
local done = {}
local gone = {}
local reasons = {}
local scores = {}
local payloads = {}
local failures = {}
for n, id in ipairs(ids) do
  local entry = ARGV[4 * n - 1]
  local envelope = ARGV[4 * n]
  local failure = ARGV[4 * n + 1]
  reply[n] = owned[n] == entry and 1 or 0
  if owned[n] == entry then
    done[#done + 1] = id
    gone[#gone + 1] = entry
    reasons[#reasons + 1] = failure
    scores[#scores + 1] = at
    scores[#scores + 1] = id
    if envelope ~= '' then
      payloads[#payloads + 1] = id
      payloads[#payloads + 1] = envelope
    end
    if failure ~= '' then
      failures[#failures + 1] = id
      failures[#failures + 1] = with_history(failure, before[n])
    end
  end
end
if #done == 0 then
  return reply
end

-- A server at its memory limit lets a script go on that starts with XACK, so a full one drains. The outbox comes next:
-- a user who may not write to it leaves an acknowledged entry, and the janitor closes that job with its follow-ups.
redis.call('XACK', stream, 'delayq', unpack(gone))
if not alone then
  leave_follow_ups(done, gone, reasons)
end
redis.call('XDEL', stream, unpack(gone))
redis.call('HDEL', entries, unpack(done))
redis.call('ZADD', failed, unpack(scores))
if #payloads > 0 then
  redis.call('HSET', jobs, unpack(payloads))
end
if #failures > 0 then
  redis.call('HSET', errors, unpack(failures))
end
redis.call('HDEL', cancel, unpack(done))
redis.call('HDEL', progress, unpack(done))

-- Free the unique keys that are still these jobs' own.
for n, digest in ipairs(redis.call('HMGET', locks, unpack(done))) do
  if digest and redis.call('HGET', unique, digest) == done[n] then
    redis.call('HDEL', unique, digest)
  end
end
redis.call('HDEL', locks, unpack(done))
redis.pcall('HINCRBY', meta, 'failed_total', #done)
return reply
