-- remove: take waiting jobs out of one of Laravel's queues, by the payloads that were shown.
--
-- moves    ready -> absent, scheduled -> absent
-- KEYS[1]  list        list    payloads, the oldest first
-- KEYS[2]  delayed     zset    payload -> due, epoch seconds
-- KEYS[3]  notify      list    one token for each payload in the list
-- ARGV[1+] job         2 each  list or delayed, payload
-- returns  1 or 0 for each: gone, or not there any more
-- cost     O(1) for the first of the list, O(its place) for others, O(log n) for those that wait for their time; at
--          most 500 and 1 MB a call, but one at least

local list, delayed, notify = KEYS[1], KEYS[2], KEYS[3]
redis.call('ZCARD', delayed)
redis.call('LLEN', notify)
local reply = {}
for i = 1, #ARGV, 2 do
  local gone = nil
  if ARGV[i] == 'list' then
    gone = redis.call('LREM', list, 1, ARGV[i + 1])
    if gone == 1 then
      redis.call('LPOP', notify)
    end
  else
    gone = redis.call('ZREM', delayed, ARGV[i + 1])
  end
  reply[#reply + 1] = gone
end
return reply
