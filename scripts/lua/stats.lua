-- stats: count the jobs of a queue in each state.
--
-- moves    nothing
-- KEYS[1]  scheduled   zset    id -> due_ms
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  failed      zset    id -> failed at
-- KEYS[4]  completed   zset    id -> forget at
-- KEYS[5]  meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock
-- returns  {scheduled, ready, reserved, failed, completed, paused_until_ms (-1 = not paused), overdue_oldest_ms,
--          lease_ms, mover_tick ms or 0, now_ms, then the counters of `meta`: name, value each}
-- cost     O(consumers)

local scheduled, stream, failed, completed, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Reads a whole number of `meta`; nil when it is none.
local function read_whole(word)
  return word and #word <= 15 and string.match(word, '^%d+$') and tonumber(word) or nil
end

local known = redis.call('HMGET', meta, 'paused_until_ms', 'lease_ms', 'mover_tick')

-- Ready is XLEN minus pending, not the group's lag: that turns nil after a deletion. What a plain consumer acknowledged
-- counts as ready until the janitor closes it. Without the group nothing is ready. A deleted entry may leave its
-- pending row behind, so reserved is cut to the length of the stream.
local held = redis.call('XLEN', stream)
local reserved = held
local last = nil
for _, group in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  local info = {}
  for i = 1, #group, 2 do
    info[group[i]] = group[i + 1]
  end
  if info.name == 'delayq' then
    reserved = math.min(held, info.pending)
    last = info['last-delivered-id']
  end
end

-- The oldest due time of what waits: the head of the set, or the first ready entry.
local oldest = now
local head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
if head[2] then
  oldest = math.max(0, math.min(oldest, tonumber(head[2])))
end
local ready = last and redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1)[1]
for i = 1, ready and #ready[2] or 0, 2 do
  if ready[2][i] == 'due' then
    oldest = math.min(oldest, tonumber(ready[2][i + 1]) or now)
  end
end

local paused_until = read_whole(known[1]) or -1
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
  read_whole(known[2]) or 0,
  read_whole(known[3]) or 0,
  now,
}
local names = {
  'scheduled_total',
  'promoted_total',
  'acked_total',
  'released_total',
  'failed_total',
  'cancelled_total',
  'reclaimed_total',
  'handed_back_total',
}
local counts = redis.call('HMGET', meta, unpack(names))
for n, name in ipairs(names) do
  reply[#reply + 1] = name
  reply[#reply + 1] = tonumber(counts[n] or 0) or 0
end
return reply
