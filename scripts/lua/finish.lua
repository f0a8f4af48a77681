-- finish: end jobs that something follows, as ack and fail do, and write what follows, in one step.
--
-- moves    reserved -> absent, reserved -> completed, reserved -> failed; of what follows here: absent -> scheduled
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  jobs        hash    id -> envelope
-- KEYS[4]  scheduled   zset    id -> due_ms
-- KEYS[5]  completed   zset    id -> forget at
-- KEYS[6]  results     hash    id -> result
-- KEYS[7]  failed      zset    id -> failed at
-- KEYS[8]  errors      hash    id -> failure; of a kept job how it ran, and as `before` the failure before
-- KEYS[9]  recoveries  hash    id -> times its worker vanished
-- KEYS[10] cancel      hash    id -> asked at
-- KEYS[11] unique      hash    digest -> owning id
-- KEYS[12] locks       hash    id -> digest
-- KEYS[13] progress    hash    id -> what the job told last
-- KEYS[14] outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended` and `job`
-- KEYS[15] meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  queue       text    its name, for the wake-up
-- ARGV[3]  wake        text    channel
-- ARGV[4+] delivery    8 each  id, entry id, end (done|failed|cancelled), retention_ms, envelope ('' = unchanged; of one
--                              that is kept as done how it ran, JSON), result or failure (JSON), todo (JSON, '' =
--                              nothing), how many jobs follow here; then, for each of those, 3 more: id, envelope,
--                              delay_ms
-- returns  1 or 0 for each: settled, or fenced because the entry is not this job's any more
-- cost     O(deliveries * log n); at most 500 and 1 MB a call, which the client sees to
--
-- Why an earlier failure is put into the history here: see release.
-- Why one step: a worker that dies between a job's end and the next link would lose the chain, or run the link twice.
-- Why what follows here waits in the set, even when it is due: promote is the one way into the stream that minds a pause
-- and the high-water mark, and the wake-up brings the mover at once.
-- Why a follower whose id is taken goes to the outbox: a relay finds out whether it is another job, and tells of it.
-- Why nothing follows here once the queue has had more than one shard: a relay finds out to which of them it belongs.

local entries, stream, jobs, scheduled, completed, results = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local failed, errors, recoveries, cancel, unique, locks = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local progress, outbox, meta = KEYS[13], KEYS[14], KEYS[15]
local now, queue, wake = tonumber(ARGV[1]), ARGV[2], ARGV[3]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local items, i = {}, 4
while ARGV[i] do
  local item = { at = i, keep = tonumber(ARGV[i + 3]), count = tonumber(ARGV[i + 7]) }
  if not (item.keep and item.count and now + item.keep <= 9007199254740991) then
    return redis.error_reply('ERR a delivery is: id, entry id, end, retention_ms, envelope, record, todo, count, followers')
  end
  items[#items + 1], i = item, i + 8 + 3 * item.count
  for n = item.at + 8, i - 1, 3 do
    if not (ARGV[n + 2] and now + (tonumber(ARGV[n + 2]) or 0 / 0) <= 9007199254740991) then
      return redis.error_reply('ERR a follower is: id, envelope, delay_ms')
    end
  end
end
for _, key in ipairs({ entries, jobs, results, errors, recoveries, cancel, unique, locks, progress, meta }) do
  redis.call('HLEN', key)
end
for _, key in ipairs({ completed, failed }) do redis.call('ZCARD', key) end
for _, key in ipairs({ stream, outbox }) do redis.call('XLEN', key) end
local head_due = tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2] or math.huge)

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

local here = (redis.call('HGET', meta, 'shards') or '1') == '1'
local reply, earliest, made = {}, math.huge, 0
for n, item in ipairs(items) do
  local at = item.at
  local id, entry, word, envelope, record, todo = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 4], ARGV[at + 5], ARGV[at + 6]
  reply[n] = redis.call('HGET', entries, id) == entry and 1 or 0
  if reply[n] == 1 then
    redis.call('XACK', stream, 'delayq', entry)
    redis.call('XDEL', stream, entry)
    for _, key in ipairs({ entries, cancel, progress }) do redis.call('HDEL', key, id) end
    if word == 'failed' then
      redis.call('ZADD', failed, string.format('%.0f', now), id)
      if envelope ~= '' then redis.call('HSET', jobs, id, envelope) end
      if record ~= '' then redis.call('HSET', errors, id, with_history(record, redis.call('HGET', errors, id))) end
    else
      local ran = item.keep > 0 and envelope or ''
      local before = ran ~= '' and redis.call('HGET', errors, id)
      if before then ran = string.sub(ran, 1, -2) .. ',"before":' .. before .. '}' end
      for _, key in ipairs({ recoveries, errors }) do redis.call('HDEL', key, id) end
      if ran ~= '' then redis.call('HSET', errors, id, ran) end
      if item.keep > 0 then
        redis.call('ZADD', completed, string.format('%.0f', now + item.keep), id)
        redis.call('HSET', results, id, record ~= '' and record or 'null')
      else
        redis.call('HDEL', jobs, id)
      end
    end
    local digest = redis.call('HGET', locks, id)
    if digest and redis.call('HGET', unique, digest) == id then redis.call('HDEL', unique, digest) end
    redis.call('HDEL', locks, id)
    for f = at + 8, at + 5 + 3 * item.count, 3 do
      if not here or redis.call('HSETNX', jobs, ARGV[f], ARGV[f + 1]) == 0 then
        todo = (todo == '' and '[' or string.sub(todo, 1, -2) .. ',') .. '{"type":"send","queue":' .. cjson.encode(queue)
          .. ',"id":' .. cjson.encode(ARGV[f]) .. ',"envelope":' .. ARGV[f + 1] .. ',"delay_ms":' .. ARGV[f + 2] .. '}]'
      else
        made = made + 1
        local due = now + ARGV[f + 2]
        redis.call('ZADD', scheduled, string.format('%.0f', due), ARGV[f])
        earliest = math.min(earliest, due)
      end
    end
    if todo ~= '' then redis.call('XADD', outbox, '*', 'todo', todo) end
    if todo ~= '' then earliest, head_due = math.min(earliest, now), math.huge end
    redis.pcall('HINCRBY', meta, word == 'failed' and 'failed_total' or 'acked_total', 1)
  end
end
if made > 0 then redis.pcall('HINCRBY', meta, 'scheduled_total', made) end
if earliest < head_due then redis.call('PUBLISH', wake, queue .. ' ' .. string.format('%.0f', earliest)) end
return reply
