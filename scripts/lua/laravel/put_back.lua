-- put_back: put what was set aside of one of Laravel's queues back into it.
--
-- moves    absent -> ready, absent -> scheduled
-- KEYS[1]  list        list    payloads, the oldest first
-- KEYS[2]  delayed     zset    payload -> due, epoch seconds
-- KEYS[3]  notify      list    one token for each payload in the list
-- KEYS[4]  aside       hash    `lot number` -> due, epoch seconds or '' = ready, a blank, and the payload
-- ARGV[1+] field       1 each  of `aside`
-- returns  how many were put back; those that are not there any more were put back before
-- cost     O(fields * log n); at most 500 a call

local list, delayed, notify, aside = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
redis.call('LLEN', list)
redis.call('LLEN', notify)
redis.call('ZCARD', delayed)
local back = 0
for _, field in ipairs(ARGV) do
  local row = redis.call('HGET', aside, field)
  if row then
    local due, job = row:match('^(%S*) (.*)$')
    redis.call('HDEL', aside, field)
    if due == '' then
      redis.call('RPUSH', list, job)
      redis.call('RPUSH', notify, '1')
    else
      redis.call('ZADD', delayed, due, job)
    end
    back = back + 1
  end
end
return back
