-- stats: count the jobs of a queue in each state.
--
-- MOVES  nothing
--
-- KEYS   scheduled   zset    id -> due, epoch ms
-- KEYS   stream      stream  group `delayq`
-- KEYS   failed      zset    id -> failed at, epoch ms
-- KEYS   completed   zset    id -> forget at, epoch ms
-- KEYS   meta        hash    paused_until_ms, lease_ms, mover_tick, counters
--
-- ARGV   now         clock
--
-- RETURNS  {scheduled, ready, reserved, failed, completed, paused_until_ms (-1 = not paused), overdue_oldest_ms,
--          lease_ms, mover_tick ms or 0, now_ms, then the counters of `meta`: name, value each}
-- COST     O(consumers)

-- include: find_group
-- include: whole_number
-- include: read_counters

local known = redis.call('HMGET', meta, 'paused_until_ms', 'lease_ms', 'mover_tick')

-- Ready is XLEN minus pending, not the lag of the group: that turns nil after a deletion. What a plain consumer has
-- acknowledged counts as ready until the janitor closes it. Without the group nothing is ready. A deleted entry may
-- leave its pending row behind, so reserved is cut to the length of the stream.
local held = redis.call('XLEN', stream)
local group = find_group(stream)
local reserved = group and math.min(held, group['pending']) or held

-- The oldest due time of what waits: the head of the set, or the first ready entry.
local oldest = now
local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2]
if head then
  oldest = math.max(0, math.min(oldest, tonumber(head)))
end
local after = group and '(' .. group['last-delivered-id']
local first_ready = after and redis.call('XRANGE', stream, after, '+', 'COUNT', 1)[1]
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
  math.max(0, held - reserved),
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
