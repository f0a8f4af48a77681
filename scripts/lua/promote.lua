-- promote: append what is due to the stream, oldest first.
--
-- moves    scheduled -> ready; a job whose payload is lost: scheduled -> failed
-- KEYS[1]  scheduled   zset    id -> due_ms
-- KEYS[2]  jobs        hash    id -> envelope
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  recoveries  hash    id -> times its worker vanished
-- KEYS[6]  failed      zset    id -> failed at
-- KEYS[7]  errors      hash    id -> failure
-- KEYS[8]  meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  limit       int     jobs at most, 1..500
-- ARGV[3]  high_water  int     entries the stream may hold
-- ARGV[4]  queue       text    for the stub of a lost payload
-- ARGV[5]  lost        json    the failure written for a lost payload
-- returns  {promoted, lost, wait_us}; wait_us: 0 = call again, -1 = nothing waits, -2 = stream full, -3 = paused,
--          else microseconds until the next job is due
-- cost     O(limit * log n), 1 MB of payload at most, but one job at least
--
-- Why payloads are read in chunks of 16: 500 large ones at once would stop the server for longer than 10 ms.
-- Why ZREM comes first: a server at its memory limit lets a script go on that starts with it, so a full one drains.
-- Why the tick may fail: at that limit it cannot be written when nothing is due, and nothing depends on it.

local scheduled, jobs, stream, entries, recoveries = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local failed, errors, meta = KEYS[6], KEYS[7], KEYS[8]
local now, limit, high_water, queue, lost_failure = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local now_us = now and now * 1000
if not now then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
  now = math.floor(now_us / 1000)
end
local known = redis.call('HMGET', meta, 'paused_until_ms', 'delivered')
for _, key in ipairs({ jobs, entries, recoveries, errors }) do redis.call('HLEN', key) end
redis.call('ZCARD', failed)
local held = redis.call('XLEN', stream)
if known[1] and (known[1] == '0' or tonumber(known[1]) > now) then return { 0, 0, -3 } end
local due = redis.call('ZRANGE', scheduled, '-inf', now, 'BYSCORE', 'LIMIT', 0, math.max(0, math.min(limit, high_water - held)), 'WITHSCORES')

local batch, bytes, marked = {}, 0, redis.call('HLEN', recoveries) > 0
for from = 1, #due, 32 do
  local ids = {}
  for i = from, math.min(from + 30, #due), 2 do ids[#ids + 1] = due[i] end
  local envelopes = redis.call('HMGET', jobs, unpack(ids))
  for n, id in ipairs(ids) do
    bytes = bytes + (envelopes[n] and #envelopes[n] or 0)
    if bytes > 1000000 and #batch > 0 then break end
    batch[#batch + 1] = { id, envelopes[n], due[from + 2 * n - 1] }
  end
  if bytes > 1000000 then break end
end

local gone, placed, lost = {}, {}, 0
for n, job in ipairs(batch) do gone[n] = job[1] end
if #gone > 0 then redis.call('ZREM', scheduled, unpack(gone)) end
if #gone > 0 and held == 0 and redis.call('EXISTS', stream) == 0 then
  redis.call('XGROUP', 'CREATE', stream, 'delayq', '0', 'MKSTREAM')
  if known[2] then redis.call('XSETID', stream, known[2]) end
  if redis.call('HLEN', entries) == 0 then redis.call('HDEL', meta, 'delivered') end
end
for _, job in ipairs(batch) do
  local id, envelope = job[1], job[2]
  if envelope then
    local times = marked and redis.call('HGET', recoveries, id) or '0'
    placed[#placed + 1] = id
    placed[#placed + 1] = redis.call('XADD', stream, '*', 'id', id, 'job', envelope, 'due', job[3], 'recoveries', times)
  else
    lost = lost + 1
    redis.call('HSET', jobs, id, '{"v":1,"id":' .. cjson.encode(id) .. ',"name":"delayq.lost","queue":"' .. queue
      .. '","data":null,"attempts":0,"created_ms":0}')
    redis.call('ZADD', failed, now, id)
    redis.call('HSET', errors, id, lost_failure)
  end
end
if #placed > 0 then redis.call('HSET', entries, unpack(placed)) end
if #placed > 0 then redis.call('HINCRBY', meta, 'promoted_total', #placed / 2) end
redis.pcall('HSET', meta, 'mover_tick', string.format('%.0f', now))
local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
local wait_us = head[2] and math.max(0, tonumber(head[2]) * 1000 - now_us) or -1
if wait_us == 0 and #batch == 0 then wait_us = -2 end
return { #placed / 2, lost, wait_us }
