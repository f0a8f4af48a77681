-- upcoming: how many jobs fall due in each of some spans of time.
--
-- moves    nothing
-- KEYS[1]  scheduled   zset    id -> due_ms
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  span_ms     int     length of one span
-- ARGV[3]  spans       int     how many, 1..500
-- returns  {now_ms, overdue, a count for each span, those later than the last}
-- cost     O(spans * log n)

local scheduled = KEYS[1]
local now, span, spans = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local function count(from, to) return redis.call('ZCOUNT', scheduled, from, to) end
local function text(ms) return string.format('%.0f', ms) end
local reply = { now, count('-inf', text(now)) }
for n = 1, spans do
  reply[#reply + 1] = count('(' .. text(now + (n - 1) * span), text(now + n * span))
end
reply[#reply + 1] = count('(' .. text(now + spans * span), '+inf')
return reply
