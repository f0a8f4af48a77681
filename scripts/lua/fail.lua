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
-- KEYS[10] progress    hash    id -> what the job told last
-- KEYS[11] outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended`, `job` and maybe `failure`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2+] delivery    4 each  id, entry id, envelope ('' = unchanged), failure (JSON, '' = unchanged);
--                              behind the last one may stand one word more, `alone`: the caller has read the
--                              envelopes, and nothing follows any of these jobs
-- returns  1 or 0 for each: settled, or fenced because the entry is not this job's any more
-- cost     O(deliveries * log n); at most 500 and 1 MB a call, which the client sees to
--
-- Recoveries stay, so that what is shown of a failed job tells how often its worker vanished; retry clears them.
-- Why an earlier failure is put into the history here: see release.
-- Why XACK comes first: a server at its memory limit lets a script go on that starts with it, so a full one drains.
-- Why an envelope's text is searched, and the outbox comes directly behind XACK: see ack.

local entries, stream, failed, jobs, errors = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local cancel, unique, locks, meta, progress, outbox = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
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
for _, key in ipairs({ jobs, errors, cancel, unique, locks, meta, progress }) do redis.call('HLEN', key) end
redis.call('ZCARD', failed)
for _, key in ipairs({ stream, outbox }) do redis.call('XLEN', key) end

if #ARGV ~= 4 * #ids + (alone and 2 or 1) then
  return redis.error_reply('ERR a delivery is: id, entry id, envelope, failure')
end

-- Leaves what follows these jobs for a relay, which reads their envelopes and finds out what that is.
local function leave_what_follows(ids, held, told)
  local owing = false
  for n, job in ipairs(redis.call('HMGET', jobs, unpack(ids))) do
    if not job then
      local fields = (redis.call('XRANGE', stream, held[n], held[n])[1] or { '', {} })[2]
      for i = 1, #fields, 2 do
        if fields[i] == 'job' then job = fields[i + 1] end
      end
    end
    if job and (string.find(job, '"chain":', 1, true) or string.find(job, '"batch":', 1, true)) then
      local why = told[n] ~= '' and { 'failure', told[n] } or {}
      redis.call('XADD', outbox, '*', 'ended', 'failed', 'job', job, unpack(why))
      owing = true
    end
  end
  local prefix, queue = string.match(entries, '^(.*):{(.*)}:entries$')
  if owing and queue then redis.pcall('PUBLISH', prefix .. ':wake', queue .. ' 0') end
end

-- A failure that brings no history of its own gets the one before it, which may have others in it.
local function with_history(failure, before)
  if string.find(failure, '"history":[{', 1, true) or not (before and string.match(before, '^{.*}$')) then
    return failure
  end
  failure = string.gsub(failure, ',%s*"history"%s*:%s*%[%s*%]', '')
  failure = string.gsub(failure, '"history"%s*:%s*%[%s*%]%s*,', '')
  local members = string.match(failure, '^%s*({.*[^{%s])%s*}%s*$')
  if not members or string.find(members, '"history"%s*:') then return failure end
  local _, depth = string.gsub(before, '"history":%[{', '')
  if depth > 8 then before = string.match(before, ',"history":%[(.*)%]}$') or before end
  return members .. ',"history":[' .. before .. ']}'
end
local before = redis.call('HLEN', errors) > 0 and redis.call('HMGET', errors, unpack(ids)) or {}

local reply, done, gone, scores, payloads, failures, told = {}, {}, {}, {}, {}, {}, {}
for n, id in ipairs(ids) do
  local entry, envelope, failure = ARGV[4 * n - 1], ARGV[4 * n], ARGV[4 * n + 1]
  reply[n] = owned[n] == entry and 1 or 0
  if owned[n] == entry then
    done[#done + 1], gone[#gone + 1], told[#told + 1] = id, entry, failure
    scores[#scores + 1], scores[#scores + 2] = string.format('%.0f', now), id
    if envelope ~= '' then payloads[#payloads + 1], payloads[#payloads + 2] = id, envelope end
    if failure ~= '' then failures[#failures + 1], failures[#failures + 2] = id, with_history(failure, before[n]) end
  end
end
if #done == 0 then return reply end
redis.call('XACK', stream, 'delayq', unpack(gone))
if not alone then leave_what_follows(done, gone, told) end
redis.call('XDEL', stream, unpack(gone))
redis.call('HDEL', entries, unpack(done))
redis.call('ZADD', failed, unpack(scores))
if #payloads > 0 then redis.call('HSET', jobs, unpack(payloads)) end
if #failures > 0 then redis.call('HSET', errors, unpack(failures)) end
for _, key in ipairs({ cancel, progress }) do redis.call('HDEL', key, unpack(done)) end
for n, digest in ipairs(redis.call('HMGET', locks, unpack(done))) do
  if digest and redis.call('HGET', unique, digest) == done[n] then redis.call('HDEL', unique, digest) end
end
redis.call('HDEL', locks, unpack(done))
redis.pcall('HINCRBY', meta, 'failed_total', #done)
return reply
