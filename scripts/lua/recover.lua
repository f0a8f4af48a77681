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
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  max_recoveries int  more than this many fail the job
-- ARGV[3]  vanished    json    the failure of a job that fails here, without its closing brace
-- ARGV[4+] delivery    2 each  id, entry id
-- returns  one number for each one looked at: 1 = in the stream again, 2 = failed, 0 = fenced. A shorter list than
--          asked means 1 MB was reached: call again with the rest
-- cost     O(deliveries * log n) and their bytes; at most 500 a call, 1 MB, but one at least
--
-- Counts as reclaim does, and ends as reclaim does: it only knows sooner. A supervisor that has waited for its child
-- needs no lease to run out, so it also needs none of reclaim's reasons to hold.
-- Why XACK comes first: a server at its memory limit lets a script go on that starts with it, so a full one drains.

local stream, entries, jobs, recoveries, failed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local errors, cancel, unique, locks, meta = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local now, most, vanished = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
for _, key in ipairs({ jobs, recoveries, errors, cancel, unique, locks, meta }) do redis.call('HLEN', key) end
redis.call('ZCARD', failed)
redis.call('XLEN', stream)

local reply, bytes, back, given_up = {}, 0, 0, 0
for i = 4, #ARGV, 2 do
  local id, entry = ARGV[i], ARGV[i + 1]
  local envelope = redis.call('HGET', entries, id) == entry and redis.call('HGET', jobs, id)
  bytes = bytes + (envelope and #envelope or 0)
  if bytes > 1000000 and #reply > 0 then break end
  reply[#reply + 1] = 0
  if envelope then
    local found = redis.call('XRANGE', stream, entry, entry)[1]
    local due = string.format('%.0f', now)
    for n = 1, found and #found[2] or 0, 2 do
      if found[2][n] == 'due' then due = found[2][n + 1] end
    end
    redis.call('XACK', stream, 'delayq', entry)
    redis.call('XDEL', stream, entry)
    redis.call('HDEL', cancel, id)
    local times = redis.call('HINCRBY', recoveries, id, 1)
    if times <= most then
      local fresh = redis.call('XADD', stream, '*', 'id', id, 'job', envelope, 'due', due, 'recoveries', times)
      redis.call('HSET', entries, id, fresh)
      back = back + 1
      reply[#reply] = 1
    else
      local digest = redis.call('HGET', locks, id)
      if digest and redis.call('HGET', unique, digest) == id then redis.call('HDEL', unique, digest) end
      redis.call('HDEL', locks, id)
      redis.call('HDEL', entries, id)
      redis.call('ZADD', failed, string.format('%.0f', now), id)
      local before = redis.call('HGET', errors, id)
      redis.call('HSET', errors, id, vanished .. ',"at_ms":' .. string.format('%.0f', now) .. ',"history":[' .. (before or '') .. ']}')
      given_up = given_up + 1
      reply[#reply] = 2
    end
  end
end
if back > 0 then redis.call('HINCRBY', meta, 'reclaimed_total', back) end
if given_up > 0 then redis.call('HINCRBY', meta, 'failed_total', given_up) end
return reply
