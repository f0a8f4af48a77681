-- ack: the work is done; forget the job, or keep it as completed for its retention.
--
-- moves    reserved -> absent, reserved -> completed
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  jobs        hash    id -> envelope
-- KEYS[4]  completed   zset    id -> forget at
-- KEYS[5]  results     hash    id -> result
-- KEYS[6]  recoveries  hash    id -> times its worker vanished
-- KEYS[7]  errors      hash    id -> failure; of a kept job how it ran, and as `before` the failure before
-- KEYS[8]  cancel      hash    id -> asked at
-- KEYS[9]  unique      hash    digest -> owning id
-- KEYS[10] locks       hash    id -> digest
-- KEYS[11] meta        hash
-- KEYS[12] progress    hash    id -> what the job told last
-- KEYS[13] outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended` and `job`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2+] delivery    4 each  id, entry id, retention_ms (0 = forget now), result (JSON, '' = null)
--                              (a blank and how it ran, JSON, may stand behind retention_ms);
--                              behind the last one may stand one word more, `alone`: the caller has read the
--                              envelopes, and nothing follows any of these jobs
-- returns  1 or 0 for each: settled, or fenced because the entry is not this job's any more
-- cost     O(deliveries); at most 500 a call
--
-- Why the count of XACK is not asked: it stays 1 after an operator's XTRIM and is 0 without the group. Ownership is
-- `entries[id] == entry id`, and nothing else.
-- Why XACK comes first: a server at its memory limit lets a script go on that starts with it, so a full one drains.
-- Why an envelope's text is searched: what follows its job has to hear of this end, and a relay reads it. A payload that
-- holds these words by chance costs the relay a look. A caller that has read the envelopes says `alone`, and none is
-- searched.
-- Why the outbox comes directly behind XACK: a user that may not write to it leaves an acknowledged entry, which the
-- janitor closes, with what follows.
-- Why the channel of the hint is taken from the name of a key: the call stays as short as it was. A hint that cannot be
-- sent is no error: a mover looks now and then for what is owed.
-- Why a kept job always gets a result: should its place be lost, mend sees by it that the job was done.

local entries, stream, jobs, completed, results = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local recoveries, errors, cancel, unique, locks, meta = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local progress, outbox = KEYS[12], KEYS[13]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local alone = #ARGV % 4 == 2 and ARGV[#ARGV] == 'alone'
local ids = {}
for i = 2, #ARGV - (alone and 1 or 0), 4 do ids[#ids + 1] = ARGV[i] end
if #ids == 0 then return {} end
local owned = redis.call('HMGET', entries, unpack(ids))
local side = {}
for _, key in ipairs({ recoveries, errors, cancel, progress }) do
  if redis.call('HLEN', key) > 0 then side[#side + 1] = key end
end
local locked = redis.call('HLEN', locks) > 0
for _, key in ipairs({ jobs, results, unique, meta }) do redis.call('HLEN', key) end
redis.call('ZCARD', completed)
for _, key in ipairs({ stream, outbox }) do redis.call('XLEN', key) end

-- Leaves what follows these jobs for a relay, which reads their envelopes and finds out what that is.
local function leave_what_follows(ids, held)
  local owing = false
  for n, job in ipairs(redis.call('HMGET', jobs, unpack(ids))) do
    if not job then
      local fields = (redis.call('XRANGE', stream, held[n], held[n])[1] or { '', {} })[2]
      for i = 1, #fields, 2 do
        if fields[i] == 'job' then job = fields[i + 1] end
      end
    end
    if job and (string.find(job, '"chain":', 1, true) or string.find(job, '"batch":', 1, true)) then
      redis.call('XADD', outbox, '*', 'ended', 'done', 'job', job)
      owing = true
    end
  end
  local prefix, queue = string.match(entries, '^(.*):{(.*)}:entries$')
  if owing and queue then redis.pcall('PUBLISH', prefix .. ':wake', queue .. ' 0') end
end

local reply, done, gone, forgotten, scores, kept, told = {}, {}, {}, {}, {}, {}, {}
for n, id in ipairs(ids) do
  local entry, retention, result = ARGV[4 * n - 1], tonumber(ARGV[4 * n]), ARGV[4 * n + 1]
  local ran
  if not retention then
    retention, ran = string.match(ARGV[4 * n] or '', '^(%d+) ({.+})$')
    retention = tonumber(retention)
  end
  if not (result and retention and now + retention <= 9007199254740991) then
    return redis.error_reply('ERR a delivery is: id, entry id, retention_ms, result')
  end
  reply[n] = owned[n] == entry and 1 or 0
  if owned[n] == entry then
    done[#done + 1], gone[#gone + 1] = id, entry
    if retention > 0 then
      scores[#scores + 1], scores[#scores + 2] = string.format('%.0f', now + retention), id
      kept[#kept + 1], kept[#kept + 2] = id, result ~= '' and result or 'null'
      if ran then
        local before = redis.call('HGET', errors, id)
        told[#told + 1], told[#told + 2] = id, before and string.sub(ran, 1, -2) .. ',"before":' .. before .. '}' or ran
      end
    else
      forgotten[#forgotten + 1] = id
    end
  end
end
if #done == 0 then return reply end
redis.call('XACK', stream, 'delayq', unpack(gone))
if not alone then leave_what_follows(done, gone) end
redis.call('XDEL', stream, unpack(gone))
redis.call('HDEL', entries, unpack(done))
if #forgotten > 0 then redis.call('HDEL', jobs, unpack(forgotten)) end
if #kept > 0 then
  redis.call('ZADD', completed, unpack(scores))
  redis.call('HSET', results, unpack(kept))
end
for _, key in ipairs(side) do redis.call('HDEL', key, unpack(done)) end
if #told > 0 then redis.call('HSET', errors, unpack(told)) end
if locked then
  for n, digest in ipairs(redis.call('HMGET', locks, unpack(done))) do
    if digest and redis.call('HGET', unique, digest) == done[n] then redis.call('HDEL', unique, digest) end
  end
  redis.call('HDEL', locks, unpack(done))
end
redis.pcall('HINCRBY', meta, 'acked_total', #done)
return reply
