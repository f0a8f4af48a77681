-- activity: what happened in each of the last minutes.
--
-- moves    nothing
-- KEYS[1]  activity    hash    minute of the day -> what happened in it, JSON
-- KEYS[2]  meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  minutes     int     how many, 1..1440; the last one has begun
-- returns  {now_ms, `tallied`, then the counters in its order, then 2 each: minute, its row}; rows of minutes in which
--          nothing happened are left out
-- cost     O(minutes)
--
-- Why a row of the day before may be among them: it says itself which minute it is.
-- Why `tallied` and the counters come along: what they are ahead of it has happened and was not written down yet.

local activity, meta = KEYS[1], KEYS[2]
local now, minutes = tonumber(ARGV[1]), math.max(1, math.min(1440, tonumber(ARGV[2])))
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local reply = { now, redis.call('HGET', meta, 'tallied') or '' }
local counters = { 'scheduled_total', 'promoted_total', 'acked_total', 'released_total', 'failed_total', 'cancelled_total',
  'reclaimed_total', 'handed_back_total' }
for n, total in ipairs(redis.call('HMGET', meta, unpack(counters))) do reply[n + 2] = tonumber(total or 0) or 0 end
local last, places = math.floor(now / 60000), {}
for n = 1, minutes do places[n] = string.format('%.0f', (last - minutes + n) % 1440) end
for n, row in ipairs(redis.call('HMGET', activity, unpack(places))) do
  if row then
    reply[#reply + 1] = last - minutes + n
    reply[#reply + 1] = row
  end
end
return reply
