-- reclaim: take back what vanished workers hold; the fourth vanish of one job fails it.
--
-- moves    reserved -> ready, under a new entry at the tail; reserved -> failed
-- KEYS[1]  stream      stream  group `delayq`
-- KEYS[2]  entries     hash    id -> entry id
-- KEYS[3]  jobs        hash    id -> envelope
-- KEYS[4]  recoveries  hash    id -> times its worker vanished
-- KEYS[5]  failed      zset    id -> failed at
-- KEYS[6]  errors      hash    id -> failure
-- KEYS[7]  cancel      hash    id -> asked at
-- KEYS[8]  unique      hash    digest -> owning id
-- KEYS[9]  locks       hash    id -> digest
-- KEYS[10] meta        hash
-- KEYS[11] progress    hash    id -> what the job told last
-- KEYS[12] outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended` and `job`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  limit       int     entries at most, 1..500
-- ARGV[3]  max_recoveries int  more than this many fail the job
-- ARGV[4]  vanished    json    the failure of a job that fails here, without its closing brace
-- ARGV[5]  queue       text    its name, for the wake-up
-- ARGV[6]  wake        text    channel; told `queue now_ms` when a relay has something to carry
-- returns  {reclaimed, failed, hold_ms, lease_ms, more 0|1}; hold_ms > 0: nothing is moved for that long
-- cost     O(pending) for XPENDING IDLE (0.06 us a row), O(limit) for the rest; 1 MB of payload, but one at least; and
--          500 pending entries a call are looked at for a time in the future
--
-- Why it may hold: idle times lie after a stall, a failover or a stepped clock, and after a time without a janitor
-- workers had no chance to renew. When the last tick is more than half a lease away, in either direction, or absent,
-- nothing moves until a whole lease has passed, in which every live worker renews.
-- Why each call walks on through the pending entries: a delivery made before the clock went back lies in the future, and
-- Redis finds it idle only after as long as the step was. Such an entry shows an idle time of 0; it is claimed for its own
-- consumer, which dates it now, and a live worker renews it within a lease. A hold begins the walk anew and asks for the
-- whole of it. The walk does not wait for a hold: a clock that goes forth and back between two ticks begins none.
-- Why an entry without a job of its own is only acknowledged: tidy then meets it as delivered and no longer pending.
-- Why one that has its job but no payload anywhere stays: once acknowledged it would look like work that was done.
-- Why the wish to stop stays, and is said in the entry: nobody withdrew it. Whoever reads the entry next ends the job
-- without starting it, and needs no call of its own to know.
-- Why an envelope's text is searched: what follows its job has to hear of this end, and a relay reads it. A payload that
-- holds these words by chance costs the relay a look.
-- Why a hint that cannot be sent is no error: a mover looks now and then for what is owed.
-- Why HDEL of nothing comes first: it is a write that a server at its memory limit allows, and opens it for the rest.

local stream, entries, jobs, recoveries, failed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local errors, cancel, unique, locks, meta, progress = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local outbox = KEYS[12]
local now, limit, most, vanished = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)
local function whole(word) return word and #word <= 15 and string.match(word, '^%d+$') and tonumber(word) or nil end
local known = redis.call('HMGET', meta, 'lease_ms', 'reclaim_tick', 'reclaim_hold', 'reclaim_walk')
local lease, tick, hold = whole(known[1]) or 30000, whole(known[2]) or 0, whole(known[3]) or 0
local walk, page_size = known[4] or '-', 500
for _, key in ipairs({ entries, jobs, errors, cancel, unique, locks, progress }) do redis.call('HLEN', key) end
local marked = redis.call('HLEN', recoveries) > 0
redis.call('ZCARD', failed)
redis.call('XLEN', outbox)
if redis.call('XLEN', stream) == 0 and redis.call('EXISTS', stream) == 0 then return { 0, 0, 0, lease, 0 } end

redis.call('HDEL', meta, '')
if now < tick or now - tick > lease / 2 or hold > now + lease then hold, walk = now + lease, '-' end
redis.call('HSET', meta, 'reclaim_tick', at, 'reclaim_hold', string.format('%.0f', hold))
local rows = redis.pcall('XPENDING', stream, 'delayq', walk == '-' and '-' or '(' .. walk, '+', page_size)
local not_idle = {}
for _, row in ipairs(rows) do
  local entry, owner, idle = row[1], row[2], row[3]
  if idle == 0 then
    not_idle[owner] = not_idle[owner] or {}
    table.insert(not_idle[owner], entry)
  end
end
for owner, ids in pairs(not_idle) do
  local words = { unpack(ids) }
  for _, word in ipairs({ 'IDLE', 0, 'JUSTID' }) do words[#words + 1] = word end
  redis.call('XCLAIM', stream, 'delayq', owner, 0, unpack(words))
end
if #rows < page_size then
  redis.call('HDEL', meta, 'reclaim_walk')
else
  redis.call('HSET', meta, 'reclaim_walk', rows[page_size][1])
  if now < hold then return { 0, 0, hold - now, lease, 1 } end
end
if now < hold then return { 0, 0, hold - now, lease, 0 } end

local idle = redis.pcall('XPENDING', stream, 'delayq', 'IDLE', lease, '-', '+', limit)
local looked, bytes, let_go, gone, ids, batch = 0, 0, {}, {}, {}, {}
for _, row in ipairs(idle) do
  local entry = row[1]
  local found, is = redis.call('XRANGE', stream, entry, entry)[1], {}
  for n = 1, found and #found[2] or 0, 2 do
    is[found[2][n]], bytes = found[2][n + 1], bytes + #found[2][n + 1]
  end
  if bytes > 1000000 and looked > 0 then break end
  looked = looked + 1
  local owned = is.id and redis.call('HGET', entries, is.id) == entry
  local stored = owned and redis.call('HGET', jobs, is.id)
  local envelope = owned and (stored or is.job)
  if envelope or not owned then let_go[#let_go + 1] = entry end
  if envelope then
    local times = (marked and tonumber(redis.call('HGET', recoveries, is.id) or 0) or 0) + 1
    local before = times > most and (redis.call('HGET', errors, is.id) or '')
    bytes = bytes + (before and #before or 0)
    ids[#ids + 1], gone[#gone + 1] = is.id, entry
    batch[#batch + 1] = { envelope, not stored, is.due or at, times, before }
  end
end
local more = #let_go > 0 and (looked < #idle or #idle == limit) and 1 or 0
if #let_go > 0 then redis.call('XACK', stream, 'delayq', unpack(let_go)) end
if #ids == 0 then return { 0, 0, 0, lease, more } end

redis.call('XDEL', stream, unpack(gone))
redis.call('HDEL', progress, unpack(ids))
local placed, counts, given_up, wishes = {}, {}, 0, redis.call('HLEN', cancel) > 0
for n, id in ipairs(ids) do
  local envelope, lost, due, times, before = unpack(batch[n])
  counts[2 * n - 1], counts[2 * n] = id, times
  if lost then redis.call('HSET', jobs, id, envelope) end
  if not before then
    local stop = wishes and redis.call('HEXISTS', cancel, id) == 1 and { 'stop', '1' } or {}
    placed[#placed + 1] = id
    placed[#placed + 1] = redis.call('XADD', stream, '*', 'id', id, 'job', envelope, 'due', due, 'recoveries', times,
      unpack(stop))
  else
    local digest = redis.call('HGET', locks, id)
    if digest and redis.call('HGET', unique, digest) == id then redis.call('HDEL', unique, digest) end
    redis.call('HDEL', locks, id)
    for _, key in ipairs({ entries, cancel }) do redis.call('HDEL', key, id) end
    redis.call('ZADD', failed, at, id)
    redis.call('HSET', errors, id, vanished .. ',"at_ms":' .. at .. ',"history":[' .. before .. ']}')
    if string.find(envelope, '"chain":', 1, true) or string.find(envelope, '"batch":', 1, true) then
      redis.call('XADD', outbox, '*', 'ended', 'failed', 'job', envelope)
      redis.pcall('PUBLISH', ARGV[6] or '', (ARGV[5] or '') .. ' ' .. at)
    end
    given_up = given_up + 1
  end
end
redis.call('HSET', recoveries, unpack(counts))
if #placed > 0 then redis.call('HSET', entries, unpack(placed)) end
if #placed > 0 then redis.pcall('HINCRBY', meta, 'reclaimed_total', #placed / 2) end
if given_up > 0 then redis.pcall('HINCRBY', meta, 'failed_total', given_up) end
return { #placed / 2, given_up, 0, lease, more }
