-- hand_back: deliver again what was not started; it costs neither an attempt nor a recovery.
--
-- moves    reserved -> ready, under a new entry at the tail
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  jobs        hash    id -> envelope
-- KEYS[4]  recoveries  hash    id -> times its worker vanished
-- KEYS[5]  cancel      hash    id -> asked at
-- KEYS[6]  meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock; the due time of an entry that lost its own
-- ARGV[2+] delivery    2 each  id, entry id
-- returns  1 or 0 for each one looked at: handed back, or fenced. A shorter list than asked means 1 MB was reached:
--          call again with the rest
-- cost     O(deliveries) and their bytes; at most 500 a call, 1 MB, but one at least
--
-- Also the way back for an entry that was trimmed away: the payload comes from `jobs`. When it is lost there, the entry
-- still carries it.
-- Why nothing is handed back without a stream: only schedule, promote and tidy make one, together with its group. Then
-- mend finds the job.
-- Why a new entry: the entry id is the lease, and its old holder may still be alive somewhere.

local entries, stream, jobs, recoveries, cancel, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)
for _, key in ipairs({ jobs, recoveries, cancel, meta }) do redis.call('HLEN', key) end
local present = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1

local reply, bytes, count = {}, 0, 0
for i = 2, #ARGV, 2 do
  local id, entry = ARGV[i], ARGV[i + 1]
  local owned = present and redis.call('HGET', entries, id) == entry
  local stored = owned and redis.call('HGET', jobs, id)
  local found, is = owned and redis.call('XRANGE', stream, entry, entry)[1], {}
  for n = 1, found and #found[2] or 0, 2 do is[found[2][n]] = found[2][n + 1] end
  local envelope = stored or is.job
  bytes = bytes + (envelope and #envelope or 0)
  if bytes > 1000000 and #reply > 0 then break end
  reply[#reply + 1] = envelope and 1 or 0
  if envelope then
    redis.call('XACK', stream, 'delayq', entry)
    redis.call('XDEL', stream, entry)
    local times = redis.call('HGET', recoveries, id) or '0'
    local fresh = redis.call('XADD', stream, '*', 'id', id, 'job', envelope, 'due', is.due or at, 'recoveries', times)
    redis.call('HSET', entries, id, fresh)
    if not stored then redis.call('HSET', jobs, id, envelope) end
    redis.call('HDEL', cancel, id)
    count = count + 1
  end
end
if count > 0 then redis.pcall('HINCRBY', meta, 'handed_back_total', count) end
return reply
