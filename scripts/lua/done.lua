-- done: the work is done and nothing is kept. It does what ack does, for the most frequent deliveries.
--
-- moves    reserved -> absent
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  jobs        hash    id -> envelope
-- KEYS[4]  recoveries  hash    id -> times its worker vanished
-- KEYS[5]  errors      hash    id -> failure
-- KEYS[6]  cancel      hash    id -> asked at
-- KEYS[7]  unique      hash    digest -> owning id
-- KEYS[8]  locks       hash    id -> digest
-- KEYS[9]  meta        hash
-- KEYS[10] progress    hash    id -> the job's last progress report
-- KEYS[11] outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended` and `job`
-- ARGV[1]  deliveries  bytes   MessagePack: a list of ids, and a list of their entry ids
-- ARGV[2]  alone       0|1     1 = the caller has read the envelopes, and nothing follows any of these jobs; may be
--                              left out
-- returns  the places (from 1) of the fenced deliveries: their entry is not this job's any more
-- cost     O(deliveries); at most 500 a call
--
-- Reading arguments was half of the cost of settling a plain job, for the client and for the server. So this script
-- takes two packed lists. What the comments do not say here, ack says.

local entries = KEYS[1]
local stream = KEYS[2]
local jobs = KEYS[3]
local recoveries = KEYS[4]
local errors = KEYS[5]
local cancel = KEYS[6]
local unique = KEYS[7]
local locks = KEYS[8]
local meta = KEYS[9]
local progress = KEYS[10]
local outbox = KEYS[11]

local call = redis.call
local readable, given = pcall(cmsgpack.unpack, ARGV[1])
local ids = nil
local held = nil
if readable and type(given) == 'table' then
  ids = given[1]
  held = given[2]
end
if type(ids) ~= 'table' or type(held) ~= 'table' or #ids ~= #held then
  return redis.error_reply('ERR deliveries are two lists of the same length: ids, and entry ids')
end
if #ids == 0 then
  return {}
end

-- Read every key, so that one of the wrong type raises its error before the first write.
local owned = call('HMGET', entries, unpack(ids))
local side = {}
for _, key in ipairs({ recoveries, errors, cancel, progress }) do
  if call('HLEN', key) > 0 then
    side[#side + 1] = key
  end
end
local has_locks = call('HLEN', locks) > 0
call('HLEN', jobs)
call('HLEN', unique)
call('HLEN', meta)
call('XLEN', stream)
call('XLEN', outbox)

-- A job with a chain or a batch has follow-ups. Its envelope goes into the outbox, where a relay reads it.
local function leave_follow_ups(done, gone)
  local owing = false
  for n, job in ipairs(call('HMGET', jobs, unpack(done))) do
    if not job then -- the payload is lost in `jobs`, and the entry still carries it
      local fields = (call('XRANGE', stream, gone[n], gone[n])[1] or { '', {} })[2]
      for i = 1, #fields, 2 do
        if fields[i] == 'job' then
          job = fields[i + 1]
        end
      end
    end
    if job and (string.find(job, '"chain":', 1, true) or string.find(job, '"batch":', 1, true)) then
      call('XADD', outbox, '*', 'ended', 'done', 'job', job)
      owing = true
    end
  end
  local prefix, queue = string.match(entries, '^(.*):{(.*)}:entries$')
  if owing and queue then
    redis.pcall('PUBLISH', prefix .. ':wake', queue .. ' 0')
  end
end

-- Nearly always nothing is fenced, and the lists are taken as they came.
local done = ids
local gone = held
local fenced = {}
for n = 1, #ids do
  if owned[n] ~= held[n] then
    fenced[#fenced + 1] = n
  end
end
if #fenced > 0 then
  done = {}
  gone = {}
  for n = 1, #ids do
    if owned[n] == held[n] then
      done[#done + 1] = ids[n]
      gone[#gone + 1] = held[n]
    end
  end
end
if #done == 0 then
  return fenced
end

call('XACK', stream, 'delayq', unpack(gone))
if ARGV[2] ~= '1' then
  leave_follow_ups(done, gone)
end
call('XDEL', stream, unpack(gone))
call('HDEL', entries, unpack(done))
call('HDEL', jobs, unpack(done))
for _, key in ipairs(side) do
  call('HDEL', key, unpack(done))
end

-- Free the unique keys that are still these jobs' own.
if has_locks then
  for n, digest in ipairs(call('HMGET', locks, unpack(done))) do
    if digest and call('HGET', unique, digest) == done[n] then
      call('HDEL', unique, digest)
    end
  end
  call('HDEL', locks, unpack(done))
end
redis.pcall('HINCRBY', meta, 'acked_total', #done)
return fenced
