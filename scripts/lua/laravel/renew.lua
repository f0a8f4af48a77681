-- renew: start the leases of reserved jobs anew.
--
-- moves    nothing
-- KEYS[1]  reserved    zset    payload, its attempt counted -> when it is let in again, epoch seconds
-- KEYS[2]  held        hash    token -> first and last digit of the count in the reserved payload, and that payload
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  lease_ms    int     Laravel's retry_after
-- ARGV[3+] token       1 each  as reserve gave it
-- returns  1 or 0 for each: ours for another lease, or not any more
-- cost     O(log n) each; at most 500 a call
--
-- Laravel's workers ask for scores that have passed, and never what a score was before. So a new score does not disturb
-- them.

local reserved, held = KEYS[1], KEYS[2]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local expiry = string.format('%.3f', (now + ARGV[2]) / 1000)
local reply = {}
for i = 3, #ARGV do
  local row = redis.call('HGET', held, ARGV[i])
  local is_ours = false
  if row then
    local _, prefix_end = row:find('^%d+ %d+ ')
    local job = row:sub(prefix_end + 1)
    is_ours = redis.call('ZSCORE', reserved, job)
    if is_ours then
      redis.call('ZADD', reserved, 'XX', expiry, job)
    end
  end
  reply[#reply + 1] = is_ours and 1 or 0
end
return reply
