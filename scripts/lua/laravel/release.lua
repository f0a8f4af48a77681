-- release: let reserved jobs come again after a delay, with the attempts they have made.
--
-- moves    reserved -> scheduled
-- KEYS[1]  delayed     zset    payload -> due, epoch seconds
-- KEYS[2]  reserved    zset    payload, its attempt counted -> when it is let in again, epoch seconds
-- KEYS[3]  held        hash    token -> first and last digit of the count in the reserved payload, and that payload
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2+] job         4 each  token, delay_ms, attempts made, payload ('' = as it was reserved)
-- returns  1 or 0 for each: waits, or fenced because it was let in again meanwhile
-- cost     O(log n) each; at most 500 a call
--
-- Why no delay means the second that has begun: a worker of Laravel's asks by whole seconds, and would wait for the next.
-- Why nothing is added for one that is fenced: Laravel's own script adds it all the same, and then it is there twice.

local delayed, reserved, held = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
redis.call('ZCARD', delayed)
local reply = {}
for i = 2, #ARGV, 4 do
  local row = redis.call('HGET', held, ARGV[i])
  local _, at, first, last = (row or ''):find('^(%d+) (%d+) ')
  local job = row and row:sub(at + 1)
  local ours = row and redis.call('ZREM', reserved, job) or 0
  redis.call('HDEL', held, ARGV[i])
  if ours == 1 then
    if ARGV[i + 3] ~= '' then
      job = ARGV[i + 3]
    elseif first ~= '0' then
      job = job:sub(1, first - 1) .. ARGV[i + 2] .. job:sub(last + 1)
    end
    local due = ARGV[i + 1] == '0' and math.floor(now / 1000) or (now + ARGV[i + 1]) / 1000
    redis.call('ZADD', delayed, string.format('%.3f', due), job)
  end
  reply[#reply + 1] = ours
end
return reply
