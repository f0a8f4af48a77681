-- mend: repair some ids, so that each has one place, and whatever has a place has a payload.
--
-- moves    (no place) -> scheduled, due now, or -> completed when a result is there; reserved -> ready under a new
--          entry when the old one is missing in the stream; a place without a payload: scheduled -> failed,
--          ready -> failed, reserved -> failed, unless the entry still carries it
-- KEYS[1]  jobs        hash    id -> envelope
-- KEYS[2]  scheduled   zset    id -> due_ms
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  recoveries  hash    id -> times its worker vanished
-- KEYS[6]  failed      zset    id -> failed at
-- KEYS[7]  errors      hash    id -> failure
-- KEYS[8]  completed   zset    id -> forget at
-- KEYS[9]  results     hash    id -> result
-- KEYS[10] cancel      hash    id -> asked at
-- KEYS[11] unique      hash    digest -> owning id
-- KEYS[12] locks       hash    id -> digest
-- KEYS[13] progress    hash    id -> the job's last progress report
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  queue       text    its name, for the stub of a lost payload
-- ARGV[3]  lost        json    the failure written for a lost payload, without its closing brace
-- ARGV[4+] id          1 each
-- returns  a word for each id it looked at: fine, restored, appended, scheduled, completed, single (extra places
--          dropped), lost or dropped (only rows beside a job were left). A shorter list than asked means: call again
--          with the rest
-- cost     O(ids * log n) and their bytes; of at most 500 it looks at 250 and 1 MB, but one at least
--
-- It is called only when the two sums disagree. No script of ours can cause that: the data was damaged. Call it after
-- `unsettled` went through the whole stream and `bury` through what it found: bury gives an entry whose row was lost
-- back to its job; here that job would have no place and be delivered a second time.

local jobs = KEYS[1]
local scheduled = KEYS[2]
local stream = KEYS[3]
local entries = KEYS[4]
local recoveries = KEYS[5]
local failed = KEYS[6]
local errors = KEYS[7]
local completed = KEYS[8]
local results = KEYS[9]
local cancel = KEYS[10]
local unique = KEYS[11]
local locks = KEYS[12]
local progress = KEYS[13]

local now = tonumber(ARGV[1])
local queue = ARGV[2]
local lost_failure = ARGV[3]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)

-- Read every key, so that one of the wrong type raises its error before the first write.
for _, key in ipairs({ jobs, entries, recoveries, errors, results, cancel, unique, locks, progress }) do
  redis.call('HLEN', key)
end
for _, key in ipairs({ scheduled, failed, completed }) do
  redis.call('ZCARD', key)
end
redis.call('XLEN', stream)

-- HDEL of nothing frees memory for Redis: a server at its memory limit allows it, and then runs the rest of the script.
redis.call('HDEL', cancel, '')

-- Repairs the entry of an id. Returns its place (nil when it is not in the stream), a word, whether its payload is
-- known now, and the bytes read.
local function repair_entry(id, is_known)
  local entry = redis.call('HGET', entries, id)
  if not entry then
    return nil, 'fine', is_known, 0
  end
  local is_valid = string.match(entry, '^%d+%-%d+$')
  local found = is_valid and redis.call('XRANGE', stream, entry, entry)[1]
  local fields = {}
  local size = 0
  for i = 1, found and #found[2] or 0, 2 do
    fields[found[2][i]] = found[2][i + 1]
    size = size + #found[2][i + 1]
  end
  if fields.id == id and (is_known or fields.job) then
    if not is_known then
      redis.call('HSET', jobs, id, fields.job)
    end
    return entries, is_known and 'fine' or 'restored', true, size
  end

  -- The row names an entry that is missing, is another job's, or has no payload.
  if is_valid and (fields.id == id or not found) then
    redis.call('XACK', stream, 'delayq', entry)
    redis.call('XDEL', stream, entry)
  end
  redis.call('HDEL', entries, id)
  if not is_known then
    return nil, 'lost', false, size
  end
  local envelope = redis.call('HGET', jobs, id)
  local times = redis.call('HGET', recoveries, id) or '0'
  -- The wish to stop stays, and the entry carries it: the next worker ends the job without starting it.
  local stop = redis.call('HEXISTS', cancel, id) == 1 and { 'stop', '1' } or {}
  -- A missing stream is not made here: only schedule, promote and tidy make one, with its group. The job then waits.
  local fresh = redis.call(
    'XADD', stream, 'NOMKSTREAM', '*', 'id', id, 'job', envelope, 'due', at, 'recoveries', times, unpack(stop)
  )
  if not fresh then
    return nil, 'fine', true, size
  end
  redis.call('HSET', entries, id, fresh)
  redis.call('HDEL', progress, id)
  return entries, 'appended', true, size + #envelope
end

-- Writes a stub for a lost payload. A failed or completed job stays where it is: its failure or result is worth
-- showing.
local function write_stub(id, place)
  redis.call('HSET', jobs, id, '{"v":1,"id":' .. cjson.encode(id) .. ',"name":"delayq.lost","queue":"' .. queue
    .. '","data":null,"attempts":0,"created_ms":0}')
  if place == completed then
    return completed, 'lost'
  end
  redis.call('ZREM', scheduled, id)
  redis.call('ZADD', failed, 'NX', at, id)
  local before = redis.call('HGET', errors, id) or ''
  if place ~= failed or before == '' then
    if not string.match(before, '^{.*}$') then -- a record that is no object has no place in a history
      before = ''
    end
    redis.call('HSET', errors, id, lost_failure .. ',"at_ms":' .. at .. ',"history":[' .. before .. ']}')
  end
  return failed, 'lost'
end

-- Drops the rows beside a job that do not belong to its place.
local function repair_side_rows(id, place)
  if place ~= completed then
    redis.call('HDEL', results, id)
  end
  if place ~= entries then
    redis.call('HDEL', cancel, id)
    redis.call('HDEL', progress, id)
  end
  -- A job that waits or runs keeps its unique key, and takes it again when it is free.
  local digest = redis.call('HGET', locks, id)
  local is_alive = place == entries or place == scheduled
  if digest then
    if is_alive then
      redis.call('HSETNX', unique, digest, id)
    end
    local is_owner = redis.call('HGET', unique, digest) == id
    if is_owner and not is_alive then
      redis.call('HDEL', unique, digest)
    end
    if not (is_owner and is_alive) then
      redis.call('HDEL', locks, id)
    end
  end
  if not place then
    redis.call('HDEL', recoveries, id)
    redis.call('HDEL', errors, id)
  end
end

local reply = {}
local bytes = 0
for i = 4, #ARGV do
  if bytes > 1000000 or #reply == 250 then
    break
  end
  local id = ARGV[i]
  local place, word, is_known, size = repair_entry(id, redis.call('HEXISTS', jobs, id) == 1)
  -- Of several places the one nearest to a worker stays: a worker may be at work on it.
  for _, set in ipairs({ scheduled, failed, completed }) do
    if redis.call('ZSCORE', set, id) then
      if place then
        redis.call('ZREM', set, id)
        word = 'single'
      else
        place = set
      end
    end
  end
  if not is_known and (place or word == 'lost') then
    place, word = write_stub(id, place)
  end
  if not is_known and not place then
    word = 'dropped'
  end
  if is_known and not place then
    place = scheduled
    word = 'scheduled'
    if redis.call('HEXISTS', results, id) == 1 then
      place = completed
      word = 'completed'
    end
    redis.call('ZADD', place, at, id)
  end
  repair_side_rows(id, place)
  reply[#reply + 1] = word
  bytes = bytes + size
end
return reply
