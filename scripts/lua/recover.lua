-- recover: take back named deliveries at once, because the process that ran them is known to be dead.
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
-- ARGV[2]  max_recoveries int  more than this many fail the job
-- ARGV[3]  vanished    json    the failure of a job that fails here, without its closing brace
-- ARGV[4]  queue       text    its name, for the wake-up
-- ARGV[5]  wake        text    channel; gets `queue now_ms` when a relay has something to carry
-- ARGV[6+] delivery    2 each  id, entry id
-- returns  one number for each delivery it looked at: 1 = in the stream again, 2 = failed, 0 = fenced. A shorter list
--          than asked means: call again with the rest
-- cost     O(deliveries * log n) and their bytes; of at most 500 it looks at 250 and 1 MB, but one at least
--
-- It does what reclaim does, sooner: a supervisor that has waited for its child need not wait for a lease.

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
local max_recoveries = tonumber(ARGV[2])
local vanished = ARGV[3]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)

-- Read every key, so that one of the wrong type raises its error before the first write.
for _, key in ipairs({ entries, jobs, recoveries, errors, cancel, unique, locks, meta, progress }) do
  redis.call('HLEN', key)
end
redis.call('ZCARD', failed)
redis.call('XLEN', outbox)

-- Without a stream nothing is taken back: only schedule, promote and tidy make one, with its group. Then mend finds the
-- job.
local has_stream = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1

-- A recorded failure as a history may hold it: at most nine failures, of which the first is never dropped.
local function earlier(before)
  if not (before and string.match(before, '^{.*}$')) then
    return ''
  end
  local _, depth = string.gsub(before, '"history":%[{', '')
  return depth > 8 and string.match(before, ',"history":%[(.*)%]}$') or before
end

local reply = {}
local bytes = 0
local back = 0
local given_up = 0
for i = 6, #ARGV, 2 do
  local id = ARGV[i]
  local entry = ARGV[i + 1]
  local is_owned = has_stream and redis.call('HGET', entries, id) == entry
  local found = is_owned and redis.call('XRANGE', stream, entry, entry)[1]
  local fields = {}
  for n = 1, found and #found[2] or 0, 2 do
    fields[found[2][n]] = found[2][n + 1]
  end
  local stored = is_owned and redis.call('HGET', jobs, id)
  local envelope = is_owned and (stored or fields.job)
  bytes = bytes + (envelope and #envelope or 0)
  if #reply == 250 or (bytes > 1000000 and #reply > 0) then
    break
  end
  reply[#reply + 1] = 0
  if envelope then
    -- A server at its memory limit lets a script go on that starts with XACK, so a full one drains.
    redis.call('XACK', stream, 'delayq', entry)
    redis.call('XDEL', stream, entry)
    redis.call('HDEL', progress, id)
    if not stored then
      redis.call('HSET', jobs, id, envelope)
    end
    local times = redis.call('HINCRBY', recoveries, id, 1)
    if times <= max_recoveries then
      -- The wish to stop stays, and the entry carries it: the next worker ends the job without starting it.
      local stop = redis.call('HEXISTS', cancel, id) == 1 and { 'stop', '1' } or {}
      local due = fields.due or at
      local fresh =
        redis.call('XADD', stream, '*', 'id', id, 'job', envelope, 'due', due, 'recoveries', times, unpack(stop))
      redis.call('HSET', entries, id, fresh)
      back = back + 1
      reply[#reply] = 1
    else
      local digest = redis.call('HGET', locks, id)
      if digest and redis.call('HGET', unique, digest) == id then
        redis.call('HDEL', unique, digest)
      end
      redis.call('HDEL', locks, id)
      redis.call('HDEL', entries, id)
      redis.call('HDEL', cancel, id)
      redis.call('ZADD', failed, at, id)
      local before = earlier(redis.call('HGET', errors, id))
      local failure = vanished .. ',"at_ms":' .. at
      redis.call('HSET', errors, id, failure .. ',"history":[' .. before .. ']}')
      -- A job with a chain or a batch has follow-ups; a relay reads the envelope in the outbox. A payload that holds
      -- these words by chance costs the relay a look. A wake-up that cannot be sent is no error: movers look now and
      -- then.
      if string.find(envelope, '"chain":', 1, true) or string.find(envelope, '"batch":', 1, true) then
        redis.call('XADD', outbox, '*', 'ended', 'failed', 'job', envelope, 'failure', failure .. '}')
        redis.pcall('PUBLISH', ARGV[5], ARGV[4] .. ' ' .. at)
      end
      given_up = given_up + 1
      reply[#reply] = 2
    end
  end
end
if back > 0 then
  redis.pcall('HINCRBY', meta, 'reclaimed_total', back)
end
if given_up > 0 then
  redis.pcall('HINCRBY', meta, 'failed_total', given_up)
end
return reply
