-- release: try again later; the entry ends and the job waits for its new due time.
--
-- moves    reserved -> scheduled
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  scheduled   zset    id -> due_ms
-- KEYS[4]  jobs        hash    id -> envelope
-- KEYS[5]  errors      hash    id -> failure
-- KEYS[6]  cancel      hash    id -> asked at
-- KEYS[7]  meta        hash
-- KEYS[8]  progress    hash    id -> what the job told last
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  queue       text    its name, for the wake-up
-- ARGV[3]  wake        text    channel
-- ARGV[4+] delivery    5 each  id, entry id, delay_ms, envelope ('' = unchanged), failure (JSON, '' = unchanged)
-- returns  1 or 0 for each: settled, or fenced because the entry is not this job's any more
-- cost     O(deliveries * log n); at most 500 and 1 MB a call, which the client sees to
--
-- Recoveries survive a release: a job that kills its worker now and then must not start afresh with every retry.
-- Why an earlier failure is put into the history here: a worker in another language would have to read it first. At most
-- nine are kept, of which the first is never dropped. A failure with a history of its own is left as it is.
-- Why XACK comes first: a server at its memory limit lets a script go on that starts with it, so a full one drains.

local entries, stream, scheduled, jobs = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local errors, cancel, meta, progress = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local now, queue, wake = tonumber(ARGV[1]), ARGV[2], ARGV[3]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local ids = {}
for i = 4, #ARGV, 5 do ids[#ids + 1] = ARGV[i] end
if #ids == 0 then return {} end
local owned = redis.call('HMGET', entries, unpack(ids))
for _, key in ipairs({ jobs, errors, cancel, meta, progress }) do redis.call('HLEN', key) end
redis.call('XLEN', stream)
local head_due = tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2] or math.huge)

local dues = {}
for n = 1, #ids do
  dues[n] = now + (tonumber(ARGV[5 * n + 1]) or 0 / 0)
  if not (ARGV[5 * n + 3] and math.abs(dues[n]) <= 9007199254740991) then
    return redis.error_reply('ERR a delivery is: id, entry id, delay_ms, envelope, failure')
  end
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

local reply, done, gone, scores, payloads, failures, earliest = {}, {}, {}, {}, {}, {}, math.huge
for n, id in ipairs(ids) do
  local entry, envelope, failure = ARGV[5 * n], ARGV[5 * n + 2], ARGV[5 * n + 3]
  reply[n] = owned[n] == entry and 1 or 0
  if owned[n] == entry then
    done[#done + 1], gone[#gone + 1] = id, entry
    scores[#scores + 1], scores[#scores + 2] = string.format('%.0f', dues[n]), id
    if envelope ~= '' then payloads[#payloads + 1], payloads[#payloads + 2] = id, envelope end
    if failure ~= '' then failures[#failures + 1], failures[#failures + 2] = id, with_history(failure, before[n]) end
    earliest = math.min(earliest, dues[n])
  end
end
if #done == 0 then return reply end
redis.call('XACK', stream, 'delayq', unpack(gone))
redis.call('XDEL', stream, unpack(gone))
redis.call('HDEL', entries, unpack(done))
redis.call('ZADD', scheduled, unpack(scores))
if #payloads > 0 then redis.call('HSET', jobs, unpack(payloads)) end
if #failures > 0 then redis.call('HSET', errors, unpack(failures)) end
for _, key in ipairs({ cancel, progress }) do redis.call('HDEL', key, unpack(done)) end
redis.pcall('HINCRBY', meta, 'released_total', #done)
if earliest < head_due then redis.call('PUBLISH', wake, queue .. ' ' .. string.format('%.0f', earliest)) end
return reply
