-- ack: the work is done. Forget the job, or keep it as completed for its retention.
--
-- moves    reserved -> absent, reserved -> completed
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  jobs        hash    id -> envelope
-- KEYS[4]  completed   zset    id -> forget at
-- KEYS[5]  results     hash    id -> result
-- KEYS[6]  recoveries  hash    id -> times its worker vanished
-- KEYS[7]  errors      hash    id -> failure; for a kept job how it ran, with the failure before it as `before`
-- KEYS[8]  cancel      hash    id -> asked at
-- KEYS[9]  unique      hash    digest -> owning id
-- KEYS[10] locks       hash    id -> digest
-- KEYS[11] meta        hash
-- KEYS[12] progress    hash    id -> the job's last progress report
-- KEYS[13] outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended` and `job`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2+] delivery    4 each  id, entry id, retention_ms (0 = forget now), result (JSON, '' = null)
--                              (retention_ms may be followed by a blank and how the job ran, JSON);
--                              one more word may follow the last delivery: `alone` = the caller has read the envelopes,
--                              and nothing follows any of these jobs
-- returns  1 or 0 for each: settled, or fenced (the entry is not this job's any more)
-- cost     O(deliveries); at most 500 a call
--
-- A worker owns a job while `entries[id]` is its entry id. The count that XACK returns proves nothing: it stays 1 after
-- an operator's XTRIM, and is 0 without the group.

local entries = KEYS[1]
local stream = KEYS[2]
local jobs = KEYS[3]
local completed = KEYS[4]
local results = KEYS[5]
local recoveries = KEYS[6]
local errors = KEYS[7]
local cancel = KEYS[8]
local unique = KEYS[9]
local locks = KEYS[10]
local meta = KEYS[11]
local progress = KEYS[12]
local outbox = KEYS[13]

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
local owned = redis.call('HMGET', entries, unpack(ids))

-- Read every key, so that one of the wrong type raises its error before the first write. Rows beside the job are
-- deleted only from those hashes that hold any.
local side = {}
for _, key in ipairs({ recoveries, errors, cancel, progress }) do
  if redis.call('HLEN', key) > 0 then
    side[#side + 1] = key
  end
end
local has_locks = redis.call('HLEN', locks) > 0
for _, key in ipairs({ jobs, results, unique, meta }) do
  redis.call('HLEN', key)
end
redis.call('ZCARD', completed)
redis.call('XLEN', stream)
redis.call('XLEN', outbox)

-- A job with a chain or a batch has follow-ups. Its envelope goes into the outbox, where a relay reads it. The text is
-- searched and not decoded; a payload that holds these words by chance costs the relay a look.
local function leave_follow_ups(done, gone)
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
      redis.call('XADD', outbox, '*', 'ended', 'done', 'job', job)
      owing = true
    end
  end
  -- Wake a mover, which calls a relay. The name of a key gives the channel, so the call needs no argument for it. A
  -- wake-up that cannot be sent is no error: movers look at the outbox now and then.
  local prefix, queue = string.match(entries, '^(.*):{(.*)}:entries$')
  if owing and queue then
    redis.pcall('PUBLISH', prefix .. ':wake', queue .. ' 0')
  end
end

-- Sort the deliveries: fenced, to be forgotten, to be kept.
local reply = {}
local done = {}
local gone = {}
local forgotten = {}
local scores = {}
local kept = {}
local reports = {}
for n, id in ipairs(ids) do
  local entry = ARGV[4 * n - 1]
  local retention = tonumber(ARGV[4 * n])
  local result = ARGV[4 * n + 1]
  local report = nil
  if not retention then
    retention, report = string.match(ARGV[4 * n] or '', '^(%d+) ({.+})$')
    retention = tonumber(retention)
  end
  if not (result and retention and now + retention <= 9007199254740991) then
    return redis.error_reply('ERR a delivery is: id, entry id, retention_ms, result')
  end
  reply[n] = owned[n] == entry and 1 or 0
  if owned[n] == entry then
    done[#done + 1] = id
    gone[#gone + 1] = entry
    if retention > 0 then
      scores[#scores + 1] = string.format('%.0f', now + retention)
      scores[#scores + 1] = id
      -- A kept job always gets a result: if its place is lost, `mend` sees by the result that the job was done.
      kept[#kept + 1] = id
      kept[#kept + 1] = result ~= '' and result or 'null'
      if report then
        local before = redis.call('HGET', errors, id)
        if before then
          report = string.sub(report, 1, -2) .. ',"before":' .. before .. '}'
        end
        reports[#reports + 1] = id
        reports[#reports + 1] = report
      end
    else
      forgotten[#forgotten + 1] = id
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
  leave_follow_ups(done, gone)
end
redis.call('XDEL', stream, unpack(gone))
redis.call('HDEL', entries, unpack(done))
if #forgotten > 0 then
  redis.call('HDEL', jobs, unpack(forgotten))
end
if #kept > 0 then
  redis.call('ZADD', completed, unpack(scores))
  redis.call('HSET', results, unpack(kept))
end
for _, key in ipairs(side) do
  redis.call('HDEL', key, unpack(done))
end
if #reports > 0 then
  redis.call('HSET', errors, unpack(reports))
end

-- Free the unique keys that are still these jobs' own.
if has_locks then
  for n, digest in ipairs(redis.call('HMGET', locks, unpack(done))) do
    if digest and redis.call('HGET', unique, digest) == done[n] then
      redis.call('HDEL', unique, digest)
    end
  end
  redis.call('HDEL', locks, unpack(done))
end
redis.pcall('HINCRBY', meta, 'acked_total', #done)
return reply
