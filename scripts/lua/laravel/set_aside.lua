-- set_aside: take waiting jobs out of one of Laravel's queues for a migration, which sends them elsewhere and then
-- drops them.
--
-- moves    ready -> absent, scheduled -> absent
-- KEYS[1]  list        list    payloads, the oldest first
-- KEYS[2]  delayed     zset    payload -> due, epoch seconds
-- KEYS[3]  notify      list    one token for each payload in the list
-- KEYS[4]  aside       hash    `lot number` -> due, epoch seconds or '' = ready, a blank, and the payload
-- ARGV[1]  lot         text    its name
-- ARGV[2+] job         2 each  list or delayed, payload
-- returns  how many were set aside; what does not wait there any more is left out
-- cost     O(1) for the first of the list, O(its place) for others, O(log n) for those that wait for their time; at
--          most 500 and 1 MB a call, but one at least
--
-- The caller names the payloads: it has looked at them, and leaves those where they are that cannot go.

local list, delayed, notify, aside = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lot = ARGV[1]
redis.call('ZCARD', delayed)
redis.call('LLEN', notify)
redis.call('HLEN', aside)
local moved = 0
for i = 2, #ARGV, 2 do
  local job = ARGV[i + 1]
  local due = nil
  if ARGV[i] == 'delayed' then
    due = redis.call('ZSCORE', delayed, job)
    if due then
      redis.call('ZREM', delayed, job)
    end
  elseif redis.call('LREM', list, 1, job) == 1 then
    redis.call('LPOP', notify)
    due = ''
  end
  if due then
    moved = moved + 1
    redis.call('HSET', aside, lot .. ' ' .. moved, due .. ' ' .. job)
  end
end
return moved
