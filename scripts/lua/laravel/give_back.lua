-- give_back: make reserved jobs ready at once, because they were not started or their worker vanished.
--
-- moves    reserved -> ready
-- KEYS[1]  list        list    payloads, the oldest first
-- KEYS[2]  reserved    zset    payload, its attempt counted -> when it is let in again, epoch seconds
-- KEYS[3]  notify      list    one token for each payload in the list
-- KEYS[4]  held        hash    token -> first and last digit of the count in the reserved payload, and that payload
-- ARGV[1]  counted     int     1: the attempt counts, and the job joins the tail; 0: it does not, and the job goes
--                              first
-- ARGV[2+] token       1 each  as reserve gave it
-- returns  1 or 0 for each: ready, or fenced because it was let in again meanwhile
-- cost     O(log n) each; at most 500 a call

local list, reserved, notify, held = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
redis.call('LLEN', list)
redis.call('LLEN', notify)
local counted = ARGV[1] == '1'
local reply = {}
for i = #ARGV, 2, -1 do
  -- Jobs that go first are put in front from the last one on, so that they come out in the order they came in.
  local n = counted and #ARGV + 2 - i or i
  local row = redis.call('HGET', held, ARGV[n])
  local _, prefix_end, first, last = (row or ''):find('^(%d+) (%d+) ')
  local job = row and row:sub(prefix_end + 1)
  local is_ours = row and redis.call('ZREM', reserved, job) or 0
  redis.call('HDEL', held, ARGV[n])
  if is_ours == 1 then
    if not counted and first ~= '0' then
      local attempts = string.format('%.0f', job:sub(first, last) - 1)
      job = job:sub(1, first - 1) .. attempts .. job:sub(last + 1)
    end
    redis.call(counted and 'RPUSH' or 'LPUSH', list, job)
    redis.call('RPUSH', notify, '1')
  end
  reply[n - 1] = is_ours
end
return reply
