-- reclaim: take back what vanished workers hold. A job whose worker vanished too often fails.
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
-- KEYS[11] progress    hash    id -> the job's last progress report
-- KEYS[12] outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended`, `job` and maybe `failure`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  limit       int     entries at most, 1..500
-- ARGV[3]  max_recoveries int  more than this many fail the job
-- ARGV[4]  vanished    json    the failure of a job that fails here, without its closing brace
-- ARGV[5]  queue       text    its name, for the wake-up
-- ARGV[6]  wake        text    channel; gets `queue now_ms` when a relay has something to carry
-- returns  {reclaimed, failed, hold_ms, lease_ms, more 0|1}; hold_ms > 0: nothing is moved for that long
-- cost     O(pending) for XPENDING IDLE (0.06 us a row), O(limit) for the rest; 1 MB of payload, but one at least; and
--          500 pending entries a call are checked for a time in the future

local stream = KEYS[1]
local entries = KEYS[2]
local jobs = KEYS[3]
local recoveries = KEYS[4]
local failed = KEYS[5]
local errors = KEYS[6]
local cancel = KEYS[7]
local unique = KEYS[8]
local locks = KEYS[9]
local meta = KEYS[10]
local progress = KEYS[11]
local outbox = KEYS[12]

local now = tonumber(ARGV[1])
local limit = tonumber(ARGV[2])
local max_recoveries = tonumber(ARGV[3])
local vanished = ARGV[4]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)

-- Reads a whole number of `meta`; nil when it is none.
local function read_whole(word)
  return word and #word <= 15 and string.match(word, '^%d+$') and tonumber(word) or nil
end

-- Read every key, so that one of the wrong type raises its error before the first write.
local known = redis.call('HMGET', meta, 'lease_ms', 'reclaim_tick', 'reclaim_hold', 'reclaim_walk')
local lease = read_whole(known[1]) or 30000
local tick = read_whole(known[2]) or 0
local hold = read_whole(known[3]) or 0
local walk = known[4] or '-'
for _, key in ipairs({ entries, jobs, errors, cancel, unique, locks, progress }) do
  redis.call('HLEN', key)
end
local has_recoveries = redis.call('HLEN', recoveries) > 0
redis.call('ZCARD', failed)
redis.call('XLEN', outbox)
if redis.call('XLEN', stream) == 0 and redis.call('EXISTS', stream) == 0 then
  return { 0, 0, 0, lease, 0 }
end

-- HDEL of nothing frees memory for Redis: a server at its memory limit allows it, and then runs the rest of the script.
redis.call('HDEL', meta, '')

-- Idle times cannot be trusted after a stall, a failover or a stepped clock, and without a janitor workers may have had
-- no chance to renew. So when the last tick is more than half a lease away in either direction, or absent, nothing
-- moves until a whole lease has passed. Every live worker renews in that time.
if now < tick or now - tick > lease / 2 or hold > now + lease then
  hold = now + lease
  walk = '-'
end
redis.call('HSET', meta, 'reclaim_tick', at, 'reclaim_hold', string.format('%.0f', hold))

-- Walk on through the pending entries, one page a call. A delivery from before the clock went back lies in the future,
-- and Redis would find it idle only after the length of the step. Such an entry shows an idle time of 0. Claiming it
-- for its own consumer dates it now; a live worker renews it within a lease. The walk does not wait for a hold: a clock
-- that goes forth and back between two ticks begins none. A new hold begins the walk anew.
local page_size = 500
local rows = redis.pcall('XPENDING', stream, 'delayq', walk == '-' and '-' or '(' .. walk, '+', page_size)
local not_idle = {}
for _, row in ipairs(rows) do
  local entry = row[1]
  local owner = row[2]
  if row[3] == 0 then
    not_idle[owner] = not_idle[owner] or {}
    table.insert(not_idle[owner], entry)
  end
end
for owner, ids in pairs(not_idle) do
  local words = { unpack(ids) }
  for _, word in ipairs({ 'IDLE', 0, 'JUSTID' }) do
    words[#words + 1] = word
  end
  redis.call('XCLAIM', stream, 'delayq', owner, 0, unpack(words))
end
if #rows < page_size then
  redis.call('HDEL', meta, 'reclaim_walk')
else
  redis.call('HSET', meta, 'reclaim_walk', rows[page_size][1])
  if now < hold then -- the whole walk belongs to the hold: ask for the next page at once
    return { 0, 0, hold - now, lease, 1 }
  end
end
if now < hold then
  return { 0, 0, hold - now, lease, 0 }
end

-- A recorded failure as a history may hold it: at most nine failures, of which the first is never dropped.
local function earlier(before)
  if not (before and string.match(before, '^{.*}$')) then
    return ''
  end
  local _, depth = string.gsub(before, '"history":%[{', '')
  return depth > 8 and string.match(before, ',"history":%[(.*)%]}$') or before
end

-- Read what was not renewed for a lease.
local idle = redis.pcall('XPENDING', stream, 'delayq', 'IDLE', lease, '-', '+', limit)
local looked = 0
local bytes = 0
local released = {} -- entries to acknowledge
local gone = {} -- of these, the ones that are appended anew or fail
local ids = {}
local batch = {}
for _, row in ipairs(idle) do
  local entry = row[1]
  local found = redis.call('XRANGE', stream, entry, entry)[1]
  local fields = {}
  for n = 1, found and #found[2] or 0, 2 do
    fields[found[2][n]] = found[2][n + 1]
    bytes = bytes + #found[2][n + 1]
  end
  if bytes > 1000000 and looked > 0 then
    break
  end
  looked = looked + 1
  local is_owned = fields.id and redis.call('HGET', entries, fields.id) == entry
  local stored = is_owned and redis.call('HGET', jobs, fields.id)
  local envelope = is_owned and (stored or fields.job)
  -- An entry that no job owns is only acknowledged; tidy then finds it as delivered and no longer pending. An entry
  -- whose job has no payload anywhere stays: acknowledged, it would look like work that was done.
  if envelope or not is_owned then
    released[#released + 1] = entry
  end
  if envelope then
    local times = (has_recoveries and tonumber(redis.call('HGET', recoveries, fields.id) or 0) or 0) + 1
    local before = times > max_recoveries and earlier(redis.call('HGET', errors, fields.id))
    bytes = bytes + (before and #before or 0)
    ids[#ids + 1] = fields.id
    gone[#gone + 1] = entry
    batch[#batch + 1] = { envelope, not stored, fields.due or at, times, before }
  end
end

local more = #released > 0 and (looked < #idle or #idle == limit) and 1 or 0
if #released > 0 then
  redis.call('XACK', stream, 'delayq', unpack(released))
end
if #ids == 0 then
  return { 0, 0, 0, lease, more }
end

redis.call('XDEL', stream, unpack(gone))
redis.call('HDEL', progress, unpack(ids))
local has_wishes = redis.call('HLEN', cancel) > 0
local placed = {}
local counts = {}
local given_up = 0
for n, id in ipairs(ids) do
  local envelope, is_lost, due, times, before = unpack(batch[n])
  counts[2 * n - 1] = id
  counts[2 * n] = times
  if is_lost then
    redis.call('HSET', jobs, id, envelope)
  end
  if not before then
    -- The wish to stop stays, and the entry carries it: the next worker ends the job without starting it.
    local stop = has_wishes and redis.call('HEXISTS', cancel, id) == 1 and { 'stop', '1' } or {}
    placed[#placed + 1] = id
    placed[#placed + 1] =
      redis.call('XADD', stream, '*', 'id', id, 'job', envelope, 'due', due, 'recoveries', times, unpack(stop))
  else
    local digest = redis.call('HGET', locks, id)
    if digest and redis.call('HGET', unique, digest) == id then
      redis.call('HDEL', unique, digest)
    end
    redis.call('HDEL', locks, id)
    redis.call('HDEL', entries, id)
    redis.call('HDEL', cancel, id)
    redis.call('ZADD', failed, at, id)
    local failure = vanished .. ',"at_ms":' .. at
    redis.call('HSET', errors, id, failure .. ',"history":[' .. before .. ']}')
    -- A job with a chain or a batch has follow-ups; a relay reads the envelope in the outbox. A payload that holds
    -- these words by chance costs the relay a look. A wake-up that cannot be sent is no error: movers look now and
    -- then.
    if string.find(envelope, '"chain":', 1, true) or string.find(envelope, '"batch":', 1, true) then
      redis.call('XADD', outbox, '*', 'ended', 'failed', 'job', envelope, 'failure', failure .. '}')
      redis.pcall('PUBLISH', ARGV[6] or '', (ARGV[5] or '') .. ' ' .. at)
    end
    given_up = given_up + 1
  end
end
redis.call('HSET', recoveries, unpack(counts))
if #placed > 0 then
  redis.call('HSET', entries, unpack(placed))
  redis.pcall('HINCRBY', meta, 'reclaimed_total', #placed / 2)
end
if given_up > 0 then
  redis.pcall('HINCRBY', meta, 'failed_total', given_up)
end
return { #placed / 2, given_up, 0, lease, more }
