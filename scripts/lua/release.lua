-- release: end a delivery and try the job again later; it waits for its new due time.
--
-- moves    reserved -> scheduled
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  scheduled   zset    id -> due_ms
-- KEYS[4]  jobs        hash    id -> envelope
-- KEYS[5]  errors      hash    id -> failure
-- KEYS[6]  cancel      hash    id -> asked at
-- KEYS[7]  meta        hash
-- KEYS[8]  progress    hash    id -> the job's last progress report
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  queue       text    its name, for the wake-up
-- ARGV[3]  wake        text    channel of the wake-up
-- ARGV[4+] delivery    5 each  id, entry id, delay_ms, envelope ('' = unchanged), failure (JSON, '' = unchanged)
-- returns  1 or 0 for each: settled, or fenced (the entry is not this job's any more)
-- cost     O(deliveries * log n); at most 500 and 1 MB a call; the client keeps to that
--
-- The row in `recoveries` stays: a job that now and then kills its worker does not start from zero with every retry.

local entries = KEYS[1]
local stream = KEYS[2]
local scheduled = KEYS[3]
local jobs = KEYS[4]
local errors = KEYS[5]
local cancel = KEYS[6]
local meta = KEYS[7]
local progress = KEYS[8]

local now = tonumber(ARGV[1])
local queue = ARGV[2]
local wake = ARGV[3]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local ids = {}
for i = 4, #ARGV, 5 do
  ids[#ids + 1] = ARGV[i]
end
if #ids == 0 then
  return {}
end

-- Read every key, so that one of the wrong type raises its error before the first write.
local owned = redis.call('HMGET', entries, unpack(ids))
for _, key in ipairs({ jobs, errors, cancel, meta, progress }) do
  redis.call('HLEN', key)
end
redis.call('XLEN', stream)
local head_due = tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2] or math.huge)

local due_of = {}
for n = 1, #ids do
  due_of[n] = now + (tonumber(ARGV[5 * n + 1]) or 0 / 0)
  if not (ARGV[5 * n + 3] and math.abs(due_of[n]) <= 9007199254740991) then
    return redis.error_reply('ERR a delivery is: id, entry id, delay_ms, envelope, failure')
  end
end

-- Puts the failure before this one into the new one's history. It happens here, because a worker in another language
-- would have to read the old failure first. The history keeps nine failures at most, and always the first. A failure
-- that brings a history of its own is left as it is.
local function with_history(failure, before)
  if string.find(failure, '"history":[{', 1, true) or not (before and string.match(before, '^{.*}$')) then
    return failure
  end
  failure = string.gsub(failure, ',%s*"history"%s*:%s*%[%s*%]', '') -- take an empty history out
  failure = string.gsub(failure, '"history"%s*:%s*%[%s*%]%s*,', '')
  local members = string.match(failure, '^%s*({.*[^{%s])%s*}%s*$')
  if not members or string.find(members, '"history"%s*:') then
    return failure
  end
  -- The failure before holds the one before it, and so on: one `"history":[{` for each.
  local _, depth = string.gsub(before, '"history":%[{', '')
  if depth > 8 then
    before = string.match(before, ',"history":%[(.*)%]}$') or before
  end
  return members .. ',"history":[' .. before .. ']}'
end
local before = redis.call('HLEN', errors) > 0 and redis.call('HMGET', errors, unpack(ids)) or {}

local reply = {}
local done = {}
local gone = {}
local scores = {}
local payloads = {}
local failures = {}
local earliest = math.huge
for n, id in ipairs(ids) do
  local entry = ARGV[5 * n]
  local envelope = ARGV[5 * n + 2]
  local failure = ARGV[5 * n + 3]
  reply[n] = owned[n] == entry and 1 or 0
  if owned[n] == entry then
    done[#done + 1] = id
    gone[#gone + 1] = entry
    scores[#scores + 1] = string.format('%.0f', due_of[n])
    scores[#scores + 1] = id
    if envelope ~= '' then
      payloads[#payloads + 1] = id
      payloads[#payloads + 1] = envelope
    end
    if failure ~= '' then
      failures[#failures + 1] = id
      failures[#failures + 1] = with_history(failure, before[n])
    end
    earliest = math.min(earliest, due_of[n])
  end
end
if #done == 0 then
  return reply
end

-- A server at its memory limit lets a script go on that starts with XACK, so a full one drains.
redis.call('XACK', stream, 'delayq', unpack(gone))
redis.call('XDEL', stream, unpack(gone))
redis.call('HDEL', entries, unpack(done))
redis.call('ZADD', scheduled, unpack(scores))
if #payloads > 0 then
  redis.call('HSET', jobs, unpack(payloads))
end
if #failures > 0 then
  redis.call('HSET', errors, unpack(failures))
end
redis.call('HDEL', cancel, unpack(done))
redis.call('HDEL', progress, unpack(done))
redis.pcall('HINCRBY', meta, 'released_total', #done)

-- Movers sleep until the time of the set's first job; a job before it wakes them.
if earliest < head_due then
  redis.call('PUBLISH', wake, queue .. ' ' .. string.format('%.0f', earliest))
end
return reply
