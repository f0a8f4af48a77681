-- hand_back: deliver again what was not started; it costs neither an attempt nor a recovery.
--
-- moves    reserved -> ready, under a new entry at the tail
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  jobs        hash    id -> envelope
-- KEYS[4]  recoveries  hash    id -> times its worker vanished
-- KEYS[5]  cancel      hash    id -> asked at
-- KEYS[6]  meta        hash
-- KEYS[7]  progress    hash    id -> what the job told last
-- ARGV[1]  now_ms      int     '' = the server's clock; the due time of an entry that lost its own
-- ARGV[2+] delivery    2 each  id, entry id
-- returns  1 or 0 for each one looked at: handed back, or fenced. A shorter list than asked means: call again with the
--          rest
-- cost     O(deliveries) and their bytes; of at most 500 it looks at 100 and 1 MB, but one at least
--
-- Also the way back for an entry that was trimmed away: the payload comes from `jobs`. When it is lost there, the entry
-- still carries it.
-- Why nothing is handed back without a stream: only schedule, promote and tidy make one, together with its group. Then
-- mend finds the job.
-- Why the wish to stop stays, and is said in the entry: nobody withdrew it. Whoever reads the entry next ends the job
-- without starting it, and needs no call of its own to know.
-- Why a new entry: the entry id is the lease, and its old holder may still be alive somewhere.

local entries, stream, jobs, recoveries, cancel, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local progress = KEYS[7]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)
for _, key in ipairs({ jobs, entries, recoveries, cancel, meta, progress }) do redis.call('HLEN', key) end
local present = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1

local ids = {}
for i = 2, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
if #ids == 0 then return {} end
local owned, times = redis.call('HMGET', entries, unpack(ids)), redis.call('HMGET', recoveries, unpack(ids))
local reply, bytes, batch, done, gone = {}, 0, {}, {}, {}
for n, id in ipairs(ids) do
  local entry, is = ARGV[2 * n + 1], {}
  local mine = present and owned[n] == entry and not done[id]
  local stored = mine and redis.call('HGET', jobs, id)
  local found = mine and redis.call('XRANGE', stream, entry, entry)[1]
  for i = 1, found and #found[2] or 0, 2 do is[found[2][i]] = found[2][i + 1] end
  local envelope = stored or is.job
  bytes = bytes + (envelope and #envelope or 0)
  if #reply == 100 or (bytes > 1000000 and #reply > 0) then break end
  reply[n] = envelope and 1 or 0
  if envelope then
    done[id], done[#done + 1], gone[#gone + 1] = true, id, entry
    batch[#batch + 1] = { envelope, is.due or at, times[n] or '0', not stored }
  end
end
if #done == 0 then return reply end
redis.call('XACK', stream, 'delayq', unpack(gone))
redis.call('XDEL', stream, unpack(gone))
local placed, wishes = {}, redis.call('HLEN', cancel) > 0
for n, job in ipairs(batch) do
  if job[4] then redis.call('HSET', jobs, done[n], job[1]) end
  local stop = wishes and redis.call('HEXISTS', cancel, done[n]) == 1 and { 'stop', '1' } or {}
  placed[2 * n - 1] = done[n]
  placed[2 * n] = redis.call('XADD', stream, '*', 'id', done[n], 'job', job[1], 'due', job[2], 'recoveries', job[3],
    unpack(stop))
end
redis.call('HSET', entries, unpack(placed))
redis.call('HDEL', progress, unpack(done))
redis.pcall('HINCRBY', meta, 'handed_back_total', #done)
return reply
