-- mend: make rule 1 true again for some ids: one place each, and a payload for whatever has a place.
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
-- KEYS[13] progress    hash    id -> what the job told last
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  queue       text    for the stub of a lost payload
-- ARGV[3]  lost        json    the failure written for a lost payload, without its closing brace
-- ARGV[4+] id          1 each
-- returns  a word for each id looked at: fine, restored, appended, scheduled, completed, single (extra places dropped),
--          lost or dropped (nothing but side rows was left). A shorter list than asked means: call again with the rest
-- cost     O(ids * log n) and their bytes; of at most 500 it looks at 250 and 1 MB, but one at least
--
-- Only called when the two sums disagree, which no script of ours can cause: somebody damaged the data. With several
-- places the one nearest to a worker wins, because somebody may be at work on it. To be called after `unsettled` went
-- through the whole stream and `bury` through what it found: an entry whose row is lost is given back to its job there,
-- while here its job has no place and would be delivered a second time.
-- Why a missing stream is not made: only schedule, promote and tidy make one, together with its group. The job waits.
-- Why a failed or completed job stays where it is without its payload: its failure or result is worth showing.
-- Why the wish to stop stays with an entry appended anew, and is said in it: as with hand_back.
-- Why HDEL of nothing comes first: it is a write that a server at its memory limit allows, and opens it for the rest.

local jobs, scheduled, stream, entries, recoveries, failed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local errors, completed, results, cancel, unique, locks, progress = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local now, queue, lost_failure = tonumber(ARGV[1]), ARGV[2], ARGV[3]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)
for _, key in ipairs({ jobs, entries, recoveries, errors, results, cancel, unique, locks, progress }) do redis.call('HLEN', key) end
for _, key in ipairs({ scheduled, failed, completed }) do redis.call('ZCARD', key) end
redis.call('XLEN', stream)
redis.call('HDEL', cancel, '')

local function in_stream(id, known)
  local entry, is, size = redis.call('HGET', entries, id), {}, 0
  if not entry then return nil, 'fine', known, 0 end
  local valid = string.match(entry, '^%d+%-%d+$')
  local found = valid and redis.call('XRANGE', stream, entry, entry)[1]
  for i = 1, found and #found[2] or 0, 2 do is[found[2][i]], size = found[2][i + 1], size + #found[2][i + 1] end
  if is.id == id and (known or is.job) then
    if not known then redis.call('HSET', jobs, id, is.job) end
    return entries, known and 'fine' or 'restored', true, size
  end
  if valid and (is.id == id or not found) then
    redis.call('XACK', stream, 'delayq', entry)
    redis.call('XDEL', stream, entry)
  end
  redis.call('HDEL', entries, id)
  if not known then return nil, 'lost', false, size end
  local envelope, times = redis.call('HGET', jobs, id), redis.call('HGET', recoveries, id) or '0'
  local fresh = redis.call('XADD', stream, 'NOMKSTREAM', '*', 'id', id, 'job', envelope, 'due', at, 'recoveries', times,
    unpack(redis.call('HEXISTS', cancel, id) == 1 and { 'stop', '1' } or {}))
  if not fresh then return nil, 'fine', true, size end
  redis.call('HSET', entries, id, fresh)
  redis.call('HDEL', progress, id)
  return entries, 'appended', true, size + #envelope
end
local function lose(id, place)
  redis.call('HSET', jobs, id, '{"v":1,"id":' .. cjson.encode(id) .. ',"name":"delayq.lost","queue":"' .. queue
    .. '","data":null,"attempts":0,"created_ms":0}')
  if place == completed then return completed, 'lost' end
  redis.call('ZREM', scheduled, id)
  redis.call('ZADD', failed, 'NX', at, id)
  local before = redis.call('HGET', errors, id) or ''
  if place ~= failed or before == '' then
    redis.call('HSET', errors, id, lost_failure .. ',"at_ms":' .. at .. ',"history":[' .. before .. ']}')
  end
  return failed, 'lost'
end
local function rows(id, place)
  if place ~= completed then redis.call('HDEL', results, id) end
  for _, key in ipairs(place == entries and {} or { cancel, progress }) do redis.call('HDEL', key, id) end
  local digest = redis.call('HGET', locks, id)
  local alive = digest and (place == entries or place == scheduled) and redis.call('HSETNX', unique, digest, id)
  local own = digest and redis.call('HGET', unique, digest) == id
  if own and not alive then redis.call('HDEL', unique, digest) end
  if digest and not (own and alive) then redis.call('HDEL', locks, id) end
  for _, key in ipairs(place and {} or { recoveries, errors }) do redis.call('HDEL', key, id) end
end

local reply, bytes = {}, 0
for i = 4, #ARGV do
  if bytes > 1000000 or #reply == 250 then break end
  local id = ARGV[i]
  local place, word, known, size = in_stream(id, redis.call('HEXISTS', jobs, id) == 1)
  for _, set in ipairs({ scheduled, failed, completed }) do
    if redis.call('ZSCORE', set, id) then
      if place then redis.call('ZREM', set, id) end
      place, word = place or set, place and 'single' or word
    end
  end
  if not known and (place or word == 'lost') then place, word = lose(id, place) end
  if not known and not place then word = 'dropped' end
  if known and not place then
    place, word = scheduled, 'scheduled'
    if redis.call('HEXISTS', results, id) == 1 then place, word = completed, 'completed' end
    redis.call('ZADD', place, at, id)
  end
  rows(id, place)
  reply[#reply + 1], bytes = word, bytes + size
end
return reply
