-- done: the work is done and nothing is kept: what ack does, for what nearly all deliveries are.
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
-- KEYS[10] progress    hash    id -> what the job told last
-- KEYS[11] outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended` and `job`
-- ARGV[1]  deliveries  bytes   MessagePack: a list of ids, and a list of their entry ids
-- ARGV[2]  alone       0|1     1 = the caller has read the envelopes, and nothing follows any of these jobs; may be
--                              left out
-- returns  the places (from 1) of those that are fenced, because the entry is not this job's any more
-- cost     O(deliveries); at most 500 a call
--
-- Why it exists beside ack: half of what settling a plain job cost, on both sides, was taking words apart.
-- Why XACK comes first, why its count is not asked, and what is left for a relay: see ack.

local entries, stream, jobs, recoveries, errors, cancel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local unique, locks, meta, progress, outbox = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local call = redis.call

local read, given = pcall(cmsgpack.unpack, ARGV[1])
local ids, held = nil, nil
if read and type(given) == 'table' then ids, held = given[1], given[2] end
if type(ids) ~= 'table' or type(held) ~= 'table' or #ids ~= #held then
  return redis.error_reply('ERR deliveries are two lists of the same length: ids, and entry ids')
end
if #ids == 0 then return {} end

local owned = call('HMGET', entries, unpack(ids))
local side = {}
for _, key in ipairs({ recoveries, errors, cancel, progress }) do
  if call('HLEN', key) > 0 then side[#side + 1] = key end
end
local locked = call('HLEN', locks) > 0
for _, key in ipairs({ jobs, unique, meta }) do call('HLEN', key) end
call('XLEN', stream)
call('XLEN', outbox)

-- Leaves what follows these jobs for a relay, which reads their envelopes and finds out what that is.
local function leave_what_follows(ids, held)
  local owing = false
  for n, job in ipairs(call('HMGET', jobs, unpack(ids))) do
    if not job then
      local fields = (call('XRANGE', stream, held[n], held[n])[1] or { '', {} })[2]
      for i = 1, #fields, 2 do
        if fields[i] == 'job' then job = fields[i + 1] end
      end
    end
    if job and (string.find(job, '"chain":', 1, true) or string.find(job, '"batch":', 1, true)) then
      call('XADD', outbox, '*', 'ended', 'done', 'job', job)
      owing = true
    end
  end
  local prefix, queue = string.match(entries, '^(.*):{(.*)}:entries$')
  if owing and queue then redis.pcall('PUBLISH', prefix .. ':wake', queue .. ' 0') end
end

local done, gone, fenced = ids, held, {}
for n = 1, #ids do
  if owned[n] ~= held[n] then fenced[#fenced + 1] = n end
end
if #fenced > 0 then
  done, gone = {}, {}
  for n = 1, #ids do
    if owned[n] == held[n] then done[#done + 1], gone[#gone + 1] = ids[n], held[n] end
  end
end
if #done == 0 then return fenced end
call('XACK', stream, 'delayq', unpack(gone))
if ARGV[2] ~= '1' then leave_what_follows(done, gone) end
call('XDEL', stream, unpack(gone))
call('HDEL', entries, unpack(done))
call('HDEL', jobs, unpack(done))
for _, key in ipairs(side) do call('HDEL', key, unpack(done)) end
if locked then
  for n, digest in ipairs(call('HMGET', locks, unpack(done))) do
    if digest and call('HGET', unique, digest) == done[n] then call('HDEL', unique, digest) end
  end
  call('HDEL', locks, unpack(done))
end
redis.pcall('HINCRBY', meta, 'acked_total', #done)
return fenced
