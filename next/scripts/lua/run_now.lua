-- run_now: end the wait of a job; it is due now.
--
-- MOVES  scheduled -> ready; scheduled -> scheduled, due now, when the queue is paused, or its stream full or gone
--
-- KEYS   scheduled   zset    id -> due, epoch ms
-- KEYS   jobs        hash    id -> envelope
-- KEYS   stream      stream  group `delayq`
-- KEYS   entries     hash    id -> entry id, while the job is in the stream
-- KEYS   recoveries  hash    id -> times its worker vanished
-- KEYS   failed      zset    id -> failed at, epoch ms
-- KEYS   completed   zset    id -> forget at, epoch ms
-- KEYS   meta        hash    paused_until_ms, delivered
--
-- ARGV   now         clock
-- ARGV   queue       text    its name, for the wake-up
-- ARGV   wake        text    channel of the wake-up
-- ARGV   high_water  int     entries that the stream may hold
-- ARGV   id          text
--
-- RETURNS  {answer, due_ms or ''}: ready, scheduled, running, failed, finished or unknown
-- COST     O(log n)

-- include: is_delivered
-- include: answer_of_end
-- include: is_paused
-- include: head_due
-- include: wake_mover
-- include: append_entry

local known = redis.call('HMGET', meta, 'paused_until_ms', 'delivered')
local entry = redis.call('HGET', entries, id)
if entry then
  return { is_delivered(stream, entry, known[2]) and 'running' or 'ready', '' }
end
local due = redis.call('ZSCORE', scheduled, id)
if not due then
  return { answer_of_end(failed, completed, id), '' }
end

local envelope = redis.call('HGET', jobs, id)
local has_stream = redis.call('EXISTS', stream) == 1
local is_full = redis.call('XLEN', stream) >= high_water
local now_text = string.format('%.0f', now)

-- The mover takes it from here. Without a stream it waits too: schedule, promote and tidy make one, together with its
-- group.
if is_paused(known[1], now) or is_full or not has_stream or not envelope then
  local head = head_due(scheduled)
  redis.call('ZADD', scheduled, now_text, id)
  if now < head then
    wake_mover(wake, queue, now)
  end
  return { 'scheduled', now_text }
end

-- A job that is overdue keeps the time since which it is late. A time before 1970 counts as now.
local since = now_text
if tonumber(due) >= 0 then
  since = string.format('%.0f', math.min(now, tonumber(due)))
end
local times = redis.call('HGET', recoveries, id) or '0'
-- XADD comes first: it grows, so a server at its memory limit refuses the whole call.
local new_entry = append_entry(stream, id, envelope, since, times)
redis.call('HSET', entries, id, new_entry)
redis.call('ZREM', scheduled, id)
return { 'ready', since }
