-- finish: end jobs that have follow-ups, as ack and fail do, and write the follow-ups in the same step.
--
-- moves    reserved -> absent, reserved -> completed, reserved -> failed; of the follow-ups in this queue: absent ->
--          scheduled
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  jobs        hash    id -> envelope
-- KEYS[4]  scheduled   zset    id -> due_ms
-- KEYS[5]  completed   zset    id -> forget at
-- KEYS[6]  results     hash    id -> result
-- KEYS[7]  failed      zset    id -> failed at
-- KEYS[8]  errors      hash    id -> failure; for a kept job how it ran, with the failure before it as `before`
-- KEYS[9]  recoveries  hash    id -> times its worker vanished
-- KEYS[10] cancel      hash    id -> asked at
-- KEYS[11] unique      hash    digest -> owning id
-- KEYS[12] locks       hash    id -> digest
-- KEYS[13] progress    hash    id -> the job's last progress report
-- KEYS[14] outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended` and `job`
-- KEYS[15] meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  queue       text    its name, for the wake-up
-- ARGV[3]  wake        text    channel of the wake-up
-- ARGV[4+] delivery    8 each  id, entry id, end (done|failed|cancelled), retention_ms, envelope ('' = unchanged; for a
--                              job that is done and kept: how it ran, JSON), result or failure (JSON), todo (JSON, '' =
--                              nothing), number of follow-ups in this queue; then 3 more for each of those: id,
--                              envelope, delay_ms
-- returns  1 or 0 for each: settled, or fenced (the entry is not this job's any more)
-- cost     O(deliveries * log n); at most 500 and 1 MB a call; the client keeps to that
--
-- One step, because a worker that dies between the end of a job and the next link would lose the chain, or run the link
-- twice.

local entries = KEYS[1]
local stream = KEYS[2]
local jobs = KEYS[3]
local scheduled = KEYS[4]
local completed = KEYS[5]
local results = KEYS[6]
local failed = KEYS[7]
local errors = KEYS[8]
local recoveries = KEYS[9]
local cancel = KEYS[10]
local unique = KEYS[11]
local locks = KEYS[12]
local progress = KEYS[13]
local outbox = KEYS[14]
local meta = KEYS[15]

local now = tonumber(ARGV[1])
local queue = ARGV[2]
local wake = ARGV[3]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Read all arguments and all keys before the first write: Redis does not roll back what a script wrote.
local items = {}
local i = 4
while ARGV[i] do
  local item = { at = i, retention = tonumber(ARGV[i + 3]), count = tonumber(ARGV[i + 7]) }
  if not (item.retention and item.count and now + item.retention <= 9007199254740991) then
    return redis.error_reply(
      'ERR a delivery is: id, entry id, end, retention_ms, envelope, record, todo, count, followers'
    )
  end
  items[#items + 1] = item
  i = i + 8 + 3 * item.count
  for n = item.at + 8, i - 1, 3 do
    if not (ARGV[n + 2] and now + (tonumber(ARGV[n + 2]) or 0 / 0) <= 9007199254740991) then
      return redis.error_reply('ERR a follower is: id, envelope, delay_ms')
    end
  end
end
for _, key in ipairs({ entries, jobs, results, errors, recoveries, cancel, unique, locks, progress, meta }) do
  redis.call('HLEN', key)
end
redis.call('ZCARD', completed)
redis.call('ZCARD', failed)
redis.call('XLEN', stream)
redis.call('XLEN', outbox)
local head_due = tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2] or math.huge)

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

-- In a queue that has had more than one shard, nothing follows here: a relay finds the shard of each follow-up.
local is_unsharded = (redis.call('HGET', meta, 'shards') or '1') == '1'
local reply = {}
local earliest = math.huge
local created = 0
for n, item in ipairs(items) do
  local id = ARGV[item.at]
  local entry = ARGV[item.at + 1]
  local ending = ARGV[item.at + 2]
  local envelope = ARGV[item.at + 4]
  local record = ARGV[item.at + 5]
  local todo = ARGV[item.at + 6]
  reply[n] = redis.call('HGET', entries, id) == entry and 1 or 0
  if reply[n] == 1 then
    redis.call('XACK', stream, 'delayq', entry)
    redis.call('XDEL', stream, entry)
    redis.call('HDEL', entries, id)
    redis.call('HDEL', cancel, id)
    redis.call('HDEL', progress, id)
    if ending == 'failed' then
      redis.call('ZADD', failed, string.format('%.0f', now), id)
      if envelope ~= '' then
        redis.call('HSET', jobs, id, envelope)
      end
      if record ~= '' then
        redis.call('HSET', errors, id, with_history(record, redis.call('HGET', errors, id)))
      end
    else
      local report = item.retention > 0 and envelope or ''
      local before = report ~= '' and redis.call('HGET', errors, id)
      if before then
        report = string.sub(report, 1, -2) .. ',"before":' .. before .. '}'
      end
      redis.call('HDEL', recoveries, id)
      redis.call('HDEL', errors, id)
      if report ~= '' then
        redis.call('HSET', errors, id, report)
      end
      if item.retention > 0 then
        redis.call('ZADD', completed, string.format('%.0f', now + item.retention), id)
        redis.call('HSET', results, id, record ~= '' and record or 'null')
      else
        redis.call('HDEL', jobs, id)
      end
    end
    local digest = redis.call('HGET', locks, id)
    if digest and redis.call('HGET', unique, digest) == id then
      redis.call('HDEL', unique, digest)
    end
    redis.call('HDEL', locks, id)

    -- A follow-up in this queue waits in the set, even when it is due: promote is the one way into the stream that
    -- respects a pause and the high-water mark, and the wake-up brings a mover at once. One whose id is taken goes to
    -- the outbox: a relay finds out whether that is another job, and reports it.
    for f = item.at + 8, item.at + 5 + 3 * item.count, 3 do
      if not is_unsharded or redis.call('HSETNX', jobs, ARGV[f], ARGV[f + 1]) == 0 then
        todo = (todo == '' and '[' or string.sub(todo, 1, -2) .. ',')
          .. '{"type":"send","queue":' .. cjson.encode(queue) .. ',"id":' .. cjson.encode(ARGV[f])
          .. ',"envelope":' .. ARGV[f + 1] .. ',"delay_ms":' .. ARGV[f + 2] .. '}]'
      else
        local due = now + ARGV[f + 2]
        created = created + 1
        redis.call('ZADD', scheduled, string.format('%.0f', due), ARGV[f])
        earliest = math.min(earliest, due)
      end
    end
    if todo ~= '' then
      redis.call('XADD', outbox, '*', 'todo', todo)
      earliest = math.min(earliest, now)
      head_due = math.huge -- wake a mover in any case: it calls a relay
    end
    redis.pcall('HINCRBY', meta, ending == 'failed' and 'failed_total' or 'acked_total', 1)
  end
end
if created > 0 then
  redis.pcall('HINCRBY', meta, 'scheduled_total', created)
end
if earliest < head_due then
  redis.call('PUBLISH', wake, queue .. ' ' .. string.format('%.0f', earliest))
end
return reply
