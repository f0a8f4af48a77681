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

local delayed, reserved, held = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
redis.call('ZCARD', delayed)
local reply = {}
for i = 2, #ARGV, 4 do
  local token = ARGV[i]
  local delay = ARGV[i + 1]
  local attempts = ARGV[i + 2]
  local payload = ARGV[i + 3]
  local row = redis.call('HGET', held, token)
  local _, prefix_end, first, last = (row or ''):find('^(%d+) (%d+) ')
  local job = row and row:sub(prefix_end + 1)
  local is_ours = row and redis.call('ZREM', reserved, job) or 0
  redis.call('HDEL', held, token)
  -- Nothing is added for a job that is fenced. Laravel's own script adds it all the same, and then it is there twice.
  if is_ours == 1 then
    if payload ~= '' then
      job = payload
    elseif first ~= '0' then
      job = job:sub(1, first - 1) .. attempts .. job:sub(last + 1)
    end
    -- No delay means the current second: a worker of Laravel's asks by whole seconds, and would wait for the next one.
    local due = delay == '0' and math.floor(now / 1000) or (now + delay) / 1000
    redis.call('ZADD', delayed, string.format('%.3f', due), job)
  end
  reply[#reply + 1] = is_ours
end
return reply
