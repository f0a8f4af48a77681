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
-- KEYS[8]  unique      hash    digest -> owning id
-- KEYS[9]  locks       hash    id -> digest
-- KEYS[10] completed   zset    id -> forget at
-- KEYS[11] meta        hash
-- KEYS[12] outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended` and `job`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  limit       int     jobs at most, 1..500
-- ARGV[3]  high_water  int     entries the stream may hold
-- ARGV[4]  queue       text    for the stub of a lost payload
-- ARGV[5]  lost        json    the failure written for a lost payload, without its closing brace
-- returns  {promoted, lost, wait_us, owed}; wait_us: 0 = call again, -1 = nothing waits, -2 = stream full, -3 = paused,
--          else microseconds until the next job is due; owed: entries of the outbox, for a relay
-- cost     O(limit * log n), 1 MB of payload at most, but one job at least
--
-- Why payloads are read in chunks that fit what was seen so far: 16 large ones at once would stop the server for long.
-- Why the removal comes first, or HDEL of nothing: a write that a server at its memory limit allows opens it for the
-- rest, so a full one drains. Why by rank: what moves is what stands in front, and need not be looked for by name.
-- Why a job that has an entry gets no second one: only damage puts it in two places, and a worker may hold the entry.
-- Why a new stream may start with the next second: see schedule.
-- Why a time before 1970 counts as now: no client writes one, and a lateness of decades would drown all others. One that
-- lies beyond all calendars never comes; the wait is cut to 2^53 - 1, above which a reply is no number that holds.
-- Why only the parts that grew are written: 19 counts, in the bounds of `activity`, and their sum in microseconds; what
-- moves together fell due together, so it is one part or two. They come oldest first, so `part` only goes down.

local scheduled, jobs, stream, entries, recoveries = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local failed, errors, unique, locks, completed, meta, outbox = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local now, limit, high_water, queue, lost_failure = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local call, past_us = redis.call, 0
if not now then
  local time = call('TIME')
  now, past_us = time[1] * 1000 + math.floor(time[2] / 1000), time[2] % 1000
end
local at = string.format('%.0f', now)
local function whole(word) return word and #word <= 15 and string.match(word, '^%d+$') and tonumber(word) or nil end
local known = call('HMGET', meta, 'paused_until_ms', 'delivered')
local till, top = whole(known[1]), known[2]; local paused = till and (till == 0 or till > now)
for _, key in ipairs({ errors, unique, locks }) do call('HLEN', key) end
local owed = call('XLEN', outbox)
local held, outstanding, marked = call('XLEN', stream), call('HLEN', entries), call('HLEN', recoveries) > 0
local damaged = call('ZCARD', scheduled) + outstanding + call('ZCARD', failed) + call('ZCARD', completed) ~= call('HLEN', jobs)
local room = paused and 0 or math.max(0, math.min(limit, high_water - held))

local due = call('ZRANGE', scheduled, '-inf', at, 'BYSCORE', 'LIMIT', '0', room, 'WITHSCORES')

local ids, envelopes, most, moving, bytes, largest = {}, {}, #due / 2, 0, 0, 0
for n = 1, most do ids[n] = due[2 * n - 1] end
while moving < most and bytes < 1000000 do
  local chunk = largest > 0 and math.max(1, math.min(16, math.floor((1000000 - bytes) / largest))) or 1
  for _, envelope in ipairs(call('HMGET', jobs, unpack(ids, moving + 1, math.min(moving + chunk, most)))) do
    local size = envelope and #envelope or 0
    bytes, largest = bytes + size, size > largest and size or largest
    if bytes > 1000000 and moving > 0 then break end
    moving = moving + 1
    envelopes[moving] = envelope
  end
end

if moving > 0 then call('ZREMRANGEBYRANK', scheduled, '0', moving - 1) else call('HDEL', meta, '') end
call('HSET', meta, 'mover_tick', at)
if paused then return { 0, 0, -3, owed } end
if moving > 0 and held == 0 and call('EXISTS', stream) == 0 then
  call('XGROUP', 'CREATE', stream, 'delayq', '0', 'MKSTREAM')
  if top or outstanding > 0 then
    top = string.format('%.0f-0', math.max((call('TIME')[1] + 1) * 1000, tonumber(string.match(top or '0', '%d+')) + 1))
    call('XSETID', stream, top)
    call('XGROUP', 'SETID', stream, 'delayq', '$')
    call('HSET', meta, 'delivered', top)
  end
end
local there = damaged and moving > 0 and call('HMGET', entries, unpack(ids, 1, moving)) or {}
local times = marked and moving > 0 and call('HMGET', recoveries, unpack(ids, 1, moving)) or {}
local placed, p, lost, waits, part, waited = {}, 0, 0, {}, 19, 0
local exactly, due_text, late = now + past_us / 1000, nil, 0
local bounds = { 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 3e5, 3.6e6 }
for n = 1, moving do
  local id, envelope, when = ids[n], envelopes[n], due[2 * n]
  if string.byte(when) == 45 then when = at end
  if not there[n] and envelope then
    placed[p + 1] = id
    placed[p + 2] = call('XADD', stream, '*', 'id', id, 'job', envelope, 'due', when, 'recoveries', times[n] or '0')
    p = p + 2
    if when ~= due_text then
      due_text, late = when, math.max(0, exactly - when)
      while part > 1 and late <= bounds[part - 1] do part = part - 1 end
    end
    waits[part], waited = (waits[part] or 0) + 1, waited + late
  elseif not there[n] then
    lost = lost + 1
    call('HSET', jobs, id, '{"v":1,"id":' .. cjson.encode(id) .. ',"name":"delayq.lost","queue":"' .. queue
      .. '","data":null,"attempts":0,"created_ms":0}')
    call('ZADD', failed, at, id)
    local before = call('HGET', errors, id) or ''
    call('HSET', errors, id, lost_failure .. ',"at_ms":' .. at .. ',"history":[' .. before .. ']}')
    local digest = call('HGET', locks, id)
    if digest and call('HGET', unique, digest) == id then call('HDEL', unique, digest) end
    call('HDEL', locks, id)
  end
end
if p > 0 then call('HSET', entries, unpack(placed)) end
if p > 0 then redis.pcall('HINCRBY', meta, 'promoted_total', p / 2) end
for n, count in pairs(waits) do redis.pcall('HINCRBY', meta, 'promoted_late_' .. n, count) end
if p > 0 then redis.pcall('HINCRBY', meta, 'promoted_late_us', string.format('%.0f', waited * 1000)) end
if lost > 0 then redis.pcall('HINCRBY', meta, 'failed_total', lost) end
local head = call('ZRANGE', scheduled, '0', '0', 'WITHSCORES')
local wait_us = head[2] and math.max(0, math.min(2^53 - 1, (tonumber(head[2]) - now) * 1000 - past_us)) or -1
if wait_us == 0 and moving == 0 then wait_us = -2 end
return { p / 2, lost, wait_us, owed }
