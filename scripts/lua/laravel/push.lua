-- push: put payloads into one of Laravel's queues, each now or when its time comes.
--
-- moves    absent -> ready, absent -> scheduled
-- KEYS[1]  list        list    payloads, the oldest first
-- KEYS[2]  delayed     zset    payload -> due, epoch seconds
-- KEYS[3]  notify      list    one token for each payload in the list
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2+] job         2 each  delay_ms (0 = now), payload
-- returns  the epoch in ms, from which the delays count
-- cost     O(jobs); at most 500 and 1 MB a call, but one at least
--
-- It must not be sent twice: a list keeps two of the same payload.

local list, delayed, notify = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
redis.call('ZCARD', delayed)
redis.call('LLEN', notify)
redis.call('LLEN', list)
for i = 2, #ARGV, 2 do
  local delay = tonumber(ARGV[i])
  local payload = ARGV[i + 1]
  if delay > 0 then
    -- Laravel writes whole seconds and reads any number. Its worker asks for what is due by a whole second, so a job
    -- that is due at .7 is never early.
    redis.call('ZADD', delayed, string.format('%.3f', (now + delay) / 1000), payload)
  else
    redis.call('RPUSH', list, payload)
    redis.call('RPUSH', notify, '1')
  end
end
return string.format('%.0f', now)
