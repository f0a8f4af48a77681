-- mend: make rule 1 true again for some ids: one place each, and a payload for whatever has a place.
--
-- moves    (no place) -> scheduled, due now; an entry missing in the stream -> ready, under a new entry;
--          a place without a payload -> failed, unless the stream entry still carries it
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
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  queue       text    for the stub of a lost payload
-- ARGV[3]  lost        json    the failure written for a lost payload
-- ARGV[4+] id          1 each
-- returns  a word for each id looked at: fine, restored, appended, scheduled, single (extra places dropped), lost or
--          dropped (nothing but side rows was left). A shorter list than asked means 1 MB was reached: call again
-- cost     O(ids * log n) and their bytes; at most 500 a call
--
-- Only called when the two sums disagree, which no script of ours can cause: somebody damaged the data. With several
-- places the one nearest to a worker wins, because somebody may be at work on it.

local jobs, scheduled, stream, entries, recoveries, failed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local errors, completed, results, cancel, unique, locks = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local now, queue, lost_failure = tonumber(ARGV[1]), ARGV[2], ARGV[3]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)
for _, key in ipairs({ jobs, entries, recoveries, errors, results, cancel, unique, locks }) do redis.call('HLEN', key) end
for _, key in ipairs({ scheduled, failed, completed }) do redis.call('ZCARD', key) end
redis.call('XLEN', stream)

local function entry_of(id, entry, known)
  local found, is = redis.call('XRANGE', stream, entry, entry)[1], {}
  for i = 1, found and #found[2] or 0, 2 do is[found[2][i]] = found[2][i + 1] end
  if found and known then return 'fine', 0 end
  if found and is.job then
    redis.call('HSET', jobs, id, is.job)
    return 'restored', #is.job
  end
  redis.call('XACK', stream, 'delayq', entry)
  redis.call('XDEL', stream, entry)
  redis.call('HDEL', entries, id)
  if not known then return nil, 0 end
  local envelope, times = redis.call('HGET', jobs, id), redis.call('HGET', recoveries, id) or '0'
  local fresh = redis.call('XADD', stream, '*', 'id', id, 'job', envelope, 'due', at, 'recoveries', times)
  redis.call('HSET', entries, id, fresh)
  return 'appended', #envelope
end
local function nowhere(id, known, placed)
  if known then
    redis.call('ZADD', scheduled, at, id)
    return 'scheduled'
  end
  for _, key in ipairs({ recoveries, errors, results, cancel }) do redis.call('HDEL', key, id) end
  local digest = redis.call('HGET', locks, id)
  if digest and redis.call('HGET', unique, digest) == id then redis.call('HDEL', unique, digest) end
  redis.call('HDEL', locks, id)
  if not placed then return 'dropped' end
  redis.call('HSET', jobs, id, '{"v":1,"id":' .. cjson.encode(id) .. ',"name":"delayq.lost","queue":"' .. queue
    .. '","data":null,"attempts":0,"created_ms":0}')
  redis.call('ZADD', failed, at, id)
  redis.call('HSET', errors, id, lost_failure)
  return 'lost'
end

local reply, bytes = {}, 0
for i = 4, #ARGV do
  if bytes > 1000000 then break end
  local id, word, size = ARGV[i], nil, 0
  local known, entry = redis.call('HEXISTS', jobs, id) == 1, redis.call('HGET', entries, id)
  local placed = entry
  if entry then word, size = entry_of(id, entry, known) end
  for _, set in ipairs({ scheduled, failed, completed }) do
    if redis.call('ZSCORE', set, id) then
      placed = true
      if word or not known then redis.call('ZREM', set, id) end
      if word or known then word = word and 'single' or 'fine' end
    end
  end
  if not word then word = nowhere(id, known, placed) end
  reply[#reply + 1], bytes = word, bytes + size
end
return reply
