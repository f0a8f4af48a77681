-- set_aside: waiting jobs leave one of Laravel's queues for a migration, which sends them elsewhere and then drops them.
--
-- moves    ready -> absent, scheduled -> absent
-- KEYS[1]  list        list    payloads, the oldest first
-- KEYS[2]  delayed     zset    payload -> due, epoch seconds
-- KEYS[3]  notify      list    one token for each payload in the list
-- KEYS[4]  aside       hash    `lot number` -> due, epoch seconds or '' = ready, a blank, and the payload
-- ARGV[1]  lot         text    its name
-- ARGV[2]  count       int     of jobs
-- returns  how many were set aside; 0 when nothing waits
-- cost     O(count * log n); 1 MB, but one job at least
--
-- Why what waits for its time goes first: what is ready may be taken by a worker just as well.

local list, delayed, notify, aside = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local lot, count = ARGV[1], tonumber(ARGV[2])
for _, key in ipairs({ list, notify }) do redis.call('LLEN', key) end
redis.call('HLEN', aside)
local some, moved, bytes = redis.call('ZRANGE', delayed, 0, count - 1, 'WITHSCORES'), 0, 0
local function keep(due, job)
  moved, bytes = moved + 1, bytes + #job
  redis.call('HSET', aside, lot .. ' ' .. moved, due .. ' ' .. job)
end
for i = 1, #some, 2 do
  if bytes > 1000000 then break end
  redis.call('ZREM', delayed, some[i])
  keep(some[i + 1], some[i])
end
while moved < count and bytes <= 1000000 do
  local job = redis.call('LPOP', list)
  if not job then break end
  redis.call('LPOP', notify)
  keep('', job)
end
return moved
