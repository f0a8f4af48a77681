-- upcoming: count the jobs that fall due in each of some spans of time.
--
-- moves    nothing
-- KEYS[1]  scheduled   zset    id -> due_ms
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  span_ms     int     length of one span
-- ARGV[3]  spans       int     how many, 1..500
-- returns  {now_ms, overdue, a count for each span, those later than the last}
-- cost     O(spans * log n)

local scheduled = KEYS[1]
local now = tonumber(ARGV[1])
local span = tonumber(ARGV[2])
local spans = tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local function format_ms(ms)
  return string.format('%.0f', ms)
end

local reply = { now, redis.call('ZCOUNT', scheduled, '-inf', format_ms(now)) }
for n = 1, spans do
  local from = '(' .. format_ms(now + (n - 1) * span)
  reply[#reply + 1] = redis.call('ZCOUNT', scheduled, from, format_ms(now + n * span))
end
reply[#reply + 1] = redis.call('ZCOUNT', scheduled, '(' .. format_ms(now + spans * span), '+inf')
return reply
