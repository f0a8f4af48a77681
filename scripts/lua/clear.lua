-- clear: drop what waits in a queue: everything scheduled, and what is ready but not yet delivered.
--
-- moves    scheduled -> absent, ready -> absent
-- KEYS[1]  scheduled   zset    id -> due_ms
-- KEYS[2]  jobs        hash    id -> envelope
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  recoveries  hash    id -> times its worker vanished
-- KEYS[6]  errors      hash    id -> failure
-- KEYS[7]  unique      hash    digest -> owning id
-- KEYS[8]  locks       hash    id -> digest
-- KEYS[9]  meta        hash
-- KEYS[10] cancel      hash    id -> asked at
-- KEYS[11] outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended` and `job`
-- ARGV[1]  limit       int     jobs at most, 1..500
-- ARGV[2]  queue       text    its name, for the wake-up
-- ARGV[3]  wake        text    channel; told `queue 0` when a relay has something to carry
-- returns  the number dropped; call again until it is 0
-- cost     O(limit * log n); 1 MB of payload, but one job at least
--
-- What is reserved runs on: it is somebody's work already, also where damage put the same id among what waits.
-- Why an envelope's text is searched: what follows its job has to hear of this end, and a relay reads it. A payload that
-- holds these words by chance costs the relay a look.
-- Why a hint that cannot be sent is no error: a mover looks now and then for what is owed.

local scheduled, jobs, stream, entries, recoveries = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local errors, unique, locks, meta, cancel, outbox = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local limit = tonumber(ARGV[1])
for _, key in ipairs({ stream, outbox }) do redis.call('XLEN', key) end
for _, key in ipairs({ jobs, entries, recoveries, errors, unique, locks, cancel }) do redis.call('HLEN', key) end

local last
for _, group in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  local is = {}
  for i = 1, #group, 2 do is[group[i]] = group[i + 1] end
  if is.name == 'delayq' then last = is['last-delivered-id'] end
end
local function pad(id)
  return (string.gsub(id, '%d+', function(digits) return string.rep('0', 20 - #digits) .. digits end))
end
local top = redis.call('HGET', meta, 'delivered')
if last and top and pad(last) < pad(top) then last = nil end

local ids, gone, bytes, largest = {}, {}, 0, 0
for _, id in ipairs(redis.call('ZRANGE', scheduled, 0, limit - 1)) do
  bytes = bytes + redis.call('HSTRLEN', jobs, id)
  if bytes > 1000000 and #ids > 0 then break end
  ids[#ids + 1] = id
end
local waiting = #ids
while last and #ids < limit and bytes < 1000000 do
  local chunk = largest > 0 and math.max(1, math.min(16, limit - #ids, math.floor((1000000 - bytes) / largest))) or 1
  local page = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', chunk)
  for _, row in ipairs(page) do
    local is, size = {}, 100
    for i = 1, #row[2], 2 do is[row[2][i]], size = row[2][i + 1], size + #row[2][i + 1] end
    bytes, largest, last = bytes + size, math.max(largest, size), row[1]
    if is.id and redis.call('HGET', entries, is.id) == row[1] then
      ids[#ids + 1], gone[#gone + 1] = is.id, row[1]
    end
  end
  if #page == 0 then break end
end
if #ids == 0 then return 0 end
redis.call('ZREM', scheduled, unpack(ids))
if #gone > 0 then
  redis.call('XDEL', stream, unpack(gone))
  redis.call('HDEL', entries, unpack(ids, waiting + 1))
end
local owed = false
for _, id in ipairs(ids) do
  local job = redis.call('HGET', jobs, id) or ''
  if string.find(job, '"chain":', 1, true) or string.find(job, '"batch":', 1, true) then
    redis.call('XADD', outbox, '*', 'ended', 'cancelled', 'job', job)
    owed = true
  end
end
if owed then redis.pcall('PUBLISH', ARGV[3] or '', (ARGV[2] or '') .. ' 0') end
for _, key in ipairs({ jobs, recoveries, errors, cancel }) do redis.call('HDEL', key, unpack(ids)) end
for _, id in ipairs(redis.call('HLEN', locks) > 0 and ids or {}) do
  local digest = redis.call('HGET', locks, id)
  if digest and redis.call('HGET', unique, digest) == id then redis.call('HDEL', unique, digest) end
  redis.call('HDEL', locks, id)
end
return #ids
