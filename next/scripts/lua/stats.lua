-- stats: Count the jobs of a queue in each state, and return its pause, its lease and its counters.
--
-- MOVES  nothing
--
-- KEYS   scheduled   zset    id -> due time, epoch ms
-- KEYS   stream      stream  entries of ready and reserved jobs; consumer group `delayq`
-- KEYS   failed      zset    id -> time of failure, epoch ms
-- KEYS   completed   zset    id -> time to forget the job, epoch ms
-- KEYS   meta        hash    fields paused_until_ms, lease_ms, mover_tick and the counters
--
-- ARGV   now         clock   epoch ms, for tests; '' = server clock
--
-- RETURNS  One flat list: these 10 values, then name and value of each counter.
--            scheduled, ready, reserved, failed, completed   number of jobs
--            paused_until_ms    end of the pause, epoch ms; 0 = until the queue is resumed; -1 = not paused
--            overdue_oldest_ms  how long the oldest due job has been waiting for a worker, in ms; 0 = no job is waiting
--            lease_ms           lease; 0 = not set
--            mover_tick         last call of `promote`, epoch ms; 0 = none
--            now_ms             time of this call, epoch ms
-- COST     O(consumer groups)

-- include: find_group
-- include: whole_number
-- include: read_counters

local known = redis.call('HMGET', meta, 'paused_until_ms', 'lease_ms', 'mover_tick')

local held = redis.call('XLEN', stream)
local group = find_group(stream)
local after = group and '(' .. group['last-delivered-id']
local first_ready = after and redis.call('XRANGE', stream, after, '+', 'COUNT', 1)[1]

-- `ready` is the stream length minus the pending entries. The field `lag` of the group is not used, because Redis
-- returns nil for it after an entry was deleted. A job that a plain consumer has acknowledged stays in the stream until
-- the janitor settles the job. Until then, the job counts as ready if the stream has ready entries, and otherwise is
-- not counted. Without the group, all jobs in the stream count as reserved. Deleted entries may still be pending, so
-- `reserved` is limited to the stream length.
local reserved = group and math.min(held, group['pending']) or held
local ready = first_ready and math.max(0, held - reserved) or 0

-- Find the oldest due time of the waiting jobs: the first job of the set, or the first ready entry.
local oldest = now
local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2]
if head then
  oldest = math.max(0, math.min(oldest, tonumber(head)))
end
for n = 1, first_ready and #first_ready[2] or 0, 2 do
  if first_ready[2][n] == 'due' then
    oldest = math.min(oldest, tonumber(first_ready[2][n + 1]) or now)
  end
end

local paused_until = whole_number(known[1]) or -1
if paused_until > 0 and paused_until <= now then
  paused_until = -1
end
local reply = {
  redis.call('ZCARD', scheduled),
  ready,
  reserved,
  redis.call('ZCARD', failed),
  redis.call('ZCARD', completed),
  paused_until,
  math.floor(now - oldest),
  whole_number(known[2]) or 0,
  whole_number(known[3]) or 0,
  now,
}
local names, counts = read_counters(meta)
for n, name in ipairs(names) do
  reply[#reply + 1] = name .. '_total'
  reply[#reply + 1] = counts[n]
end
return reply
