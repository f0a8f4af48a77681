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
-- KEYS[11] progress    hash    id -> what the job told last
-- KEYS[12] outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended` and `job`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  max_recoveries int  more than this many fail the job
-- ARGV[3]  vanished    json    the failure of a job that fails here, without its closing brace
-- ARGV[4]  queue       text    its name, for the wake-up
-- ARGV[5]  wake        text    channel; told `queue now_ms` when a relay has something to carry
-- ARGV[6+] delivery    2 each  id, entry id
-- returns  one number for each one looked at: 1 = in the stream again, 2 = failed, 0 = fenced. A shorter list than
--          asked means: call again with the rest
-- cost     O(deliveries * log n) and their bytes; of at most 500 it looks at 250 and 1 MB, but one at least
--
-- Counts as reclaim does, and ends as reclaim does: it only knows sooner. A supervisor that has waited for its child
-- needs no lease to run out, so it also needs none of reclaim's reasons to hold.
-- Why nothing is taken back without a stream: only schedule, promote and tidy make one, together with its group. Then
-- mend finds the job.
-- Why the wish to stop stays, and is said in the entry: nobody withdrew it. Whoever reads the entry next ends the job
-- without starting it, and needs no call of its own to know.
-- Why an envelope's text is searched: what follows its job has to hear of this end, and a relay reads it. A payload that
-- holds these words by chance costs the relay a look.
-- Why a hint that cannot be sent is no error: a mover looks now and then for what is owed.
-- Why XACK comes first: a server at its memory limit lets a script go on that starts with it, so a full one drains.

local stream, entries, jobs, recoveries, failed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local errors, cancel, unique, locks, meta, progress = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local outbox = KEYS[12]
local now, most, vanished = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)
for _, key in ipairs({ entries, jobs, recoveries, errors, cancel, unique, locks, meta, progress }) do redis.call('HLEN', key) end
redis.call('ZCARD', failed)
redis.call('XLEN', outbox)
local present = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1

local reply, bytes, back, given_up = {}, 0, 0, 0
for i = 6, #ARGV, 2 do
  local id, entry, is = ARGV[i], ARGV[i + 1], {}
  local owned = present and redis.call('HGET', entries, id) == entry
  local found = owned and redis.call('XRANGE', stream, entry, entry)[1]
  for n = 1, found and #found[2] or 0, 2 do is[found[2][n]] = found[2][n + 1] end
  local stored = owned and redis.call('HGET', jobs, id)
  local envelope = owned and (stored or is.job)
  bytes = bytes + (envelope and #envelope or 0)
  if #reply == 250 or (bytes > 1000000 and #reply > 0) then break end
  reply[#reply + 1] = 0
  if envelope then
    redis.call('XACK', stream, 'delayq', entry)
    redis.call('XDEL', stream, entry)
    redis.call('HDEL', progress, id)
    if not stored then redis.call('HSET', jobs, id, envelope) end
    local times = redis.call('HINCRBY', recoveries, id, 1)
    if times <= most then
      local stop = redis.call('HEXISTS', cancel, id) == 1 and { 'stop', '1' } or {}
      local fresh = redis.call('XADD', stream, '*', 'id', id, 'job', envelope, 'due', is.due or at, 'recoveries', times,
        unpack(stop))
      redis.call('HSET', entries, id, fresh)
      back = back + 1
      reply[#reply] = 1
    else
      local digest = redis.call('HGET', locks, id)
      if digest and redis.call('HGET', unique, digest) == id then redis.call('HDEL', unique, digest) end
      redis.call('HDEL', locks, id)
      for _, key in ipairs({ entries, cancel }) do redis.call('HDEL', key, id) end
      redis.call('ZADD', failed, at, id)
      local before = redis.call('HGET', errors, id)
      redis.call('HSET', errors, id, vanished .. ',"at_ms":' .. at .. ',"history":[' .. (before or '') .. ']}')
      if string.find(envelope, '"chain":', 1, true) or string.find(envelope, '"batch":', 1, true) then
        redis.call('XADD', outbox, '*', 'ended', 'failed', 'job', envelope)
        redis.pcall('PUBLISH', ARGV[5], ARGV[4] .. ' ' .. at)
      end
      given_up = given_up + 1
      reply[#reply] = 2
    end
  end
end
if back > 0 then redis.pcall('HINCRBY', meta, 'reclaimed_total', back) end
if given_up > 0 then redis.pcall('HINCRBY', meta, 'failed_total', given_up) end
return reply
