-- activity: what happened in each of the last minutes.
--
-- moves    nothing
-- KEYS[1]  activity    hash    minute of the day -> what happened in it, JSON
-- KEYS[2]  meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  minutes     int     how many, 1..1440; the current minute is the last one
-- returns  {now_ms, `tallied`, then the counters in its order, then 2 each: minute, its row}; minutes without a row are
--          left out
-- cost     O(minutes)
--
-- A row of the day before may be among them: each row says which minute it is. What the counters are ahead of `tallied`
-- has happened and was not written into a row yet.

local activity, meta = KEYS[1], KEYS[2]
local now = tonumber(ARGV[1])
local minutes = math.max(1, math.min(1440, tonumber(ARGV[2])))
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local reply = { now, redis.call('HGET', meta, 'tallied') or '' }
local counters = {
  'scheduled_total',
  'promoted_total',
  'acked_total',
  'released_total',
  'failed_total',
  'cancelled_total',
  'reclaimed_total',
  'handed_back_total',
}
for n, total in ipairs(redis.call('HMGET', meta, unpack(counters))) do
  reply[n + 2] = tonumber(total or 0) or 0
end

local last = math.floor(now / 60000)
local places = {}
for n = 1, minutes do
  places[n] = string.format('%.0f', (last - minutes + n) % 1440)
end
for n, row in ipairs(redis.call('HMGET', activity, unpack(places))) do
  if row then
    reply[#reply + 1] = last - minutes + n
    reply[#reply + 1] = row
  end
end
return reply
