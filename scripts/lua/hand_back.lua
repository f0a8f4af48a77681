-- hand_back: deliver again what was not started. It costs neither an attempt nor a recovery.
--
-- moves    reserved -> ready, under a new entry at the tail
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  jobs        hash    id -> envelope
-- KEYS[4]  recoveries  hash    id -> times its worker vanished
-- KEYS[5]  cancel      hash    id -> asked at
-- KEYS[6]  meta        hash
-- KEYS[7]  progress    hash    id -> the job's last progress report
-- ARGV[1]  now_ms      int     '' = the server's clock; the due time of an entry that lost its own
-- ARGV[2+] delivery    2 each  id, entry id;
--                              one more word may follow the last delivery: `unheld` = the janitor found that no worker
--                              holds these deliveries, and they do not count as handed back
-- returns  1 or 0 for each delivery it looked at: handed back, or fenced. A shorter list than asked means: call again
--          with the rest
-- cost     O(deliveries) and their bytes; of at most 500 it looks at 100 and 1 MB, but one at least
--
-- The job gets a new entry, because the entry id is the lease, and its old holder may still be alive. An entry that was
-- trimmed away comes back too: its payload is in `jobs`. A payload that is lost there is taken from the entry.

local entries = KEYS[1]
local stream = KEYS[2]
local jobs = KEYS[3]
local recoveries = KEYS[4]
local cancel = KEYS[5]
local meta = KEYS[6]
local progress = KEYS[7]

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)

-- Read every key, so that one of the wrong type raises its error before the first write.
for _, key in ipairs({ jobs, entries, recoveries, cancel, meta, progress }) do
  redis.call('HLEN', key)
end

-- Without a stream nothing is handed back: only schedule, promote and tidy make one, with its group. Then mend finds
-- the job.
local has_stream = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1

local unheld = #ARGV % 2 == 0 and ARGV[#ARGV] == 'unheld'
local ids = {}
for i = 2, #ARGV - (unheld and 1 or 0), 2 do
  ids[#ids + 1] = ARGV[i]
end
if #ids == 0 then
  return {}
end
local owned = redis.call('HMGET', entries, unpack(ids))
local recoveries_of = redis.call('HMGET', recoveries, unpack(ids))
local reply = {}
local bytes = 0
local batch = {}
local seen = {}
local done = {}
local gone = {}
for n, id in ipairs(ids) do
  local entry = ARGV[2 * n + 1]
  local is_owned = has_stream and owned[n] == entry and not seen[id]
  local stored = is_owned and redis.call('HGET', jobs, id)
  local found = is_owned and redis.call('XRANGE', stream, entry, entry)[1]
  local fields = {}
  for i = 1, found and #found[2] or 0, 2 do
    fields[found[2][i]] = found[2][i + 1]
  end
  local envelope = stored or fields.job
  bytes = bytes + (envelope and #envelope or 0)
  if #reply == 100 or (bytes > 1000000 and #reply > 0) then
    break
  end
  reply[n] = envelope and 1 or 0
  if envelope then
    seen[id] = true
    done[#done + 1] = id
    gone[#gone + 1] = entry
    batch[#batch + 1] = {
      envelope,
      fields.due or at,
      recoveries_of[n] or '0',
      not stored,
    }
  end
end
if #done == 0 then
  return reply
end

redis.call('XACK', stream, 'delayq', unpack(gone))
redis.call('XDEL', stream, unpack(gone))
local has_wishes = redis.call('HLEN', cancel) > 0
local placed = {}
for n, id in ipairs(done) do
  local envelope, due, times, is_lost = unpack(batch[n])
  if is_lost then
    redis.call('HSET', jobs, id, envelope)
  end
  -- The wish to stop stays, and the entry carries it: the next worker ends the job without starting it.
  local stop = has_wishes and redis.call('HEXISTS', cancel, id) == 1 and { 'stop', '1' } or {}
  placed[2 * n - 1] = id
  placed[2 * n] =
    redis.call('XADD', stream, '*', 'id', id, 'job', envelope, 'due', due, 'recoveries', times, unpack(stop))
end
redis.call('HSET', entries, unpack(placed))
redis.call('HDEL', progress, unpack(done))
if not unheld then
  redis.pcall('HINCRBY', meta, 'handed_back_total', #done)
end
return reply
