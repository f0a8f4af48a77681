-- reschedule: give a job that no worker has been given a new due time.
--
-- MOVES  scheduled -> scheduled, ready -> scheduled
--
-- KEYS   scheduled   zset    id -> due, epoch ms
-- KEYS   stream      stream  group `delayq`
-- KEYS   entries     hash    id -> entry id, while the job is in the stream
-- KEYS   failed      zset    id -> failed at, epoch ms
-- KEYS   completed   zset    id -> forget at, epoch ms
-- KEYS   meta        hash    delivered
-- KEYS   cancel      hash    id -> asked to stop at, epoch ms
--
-- ARGV   now         clock
-- ARGV   queue       text    its name, for the wake-up
-- ARGV   wake        text    channel of the wake-up
-- ARGV   id          text
-- ARGV   when        text    '+delay_ms', or due_ms, in the past = now
--
-- RETURNS  {answer, due_ms or ''}: rescheduled, running, failed, finished or unknown
-- COST     O(log n)

-- include: due_time
-- include: is_delivered
-- include: answer_of_end
-- include: head_due
-- include: wake_mover

local due = due_time(when, now)
if not due then
  return redis.error_reply('ERR reschedule: when is +delay_ms or due_ms below 2^53, not ' .. when)
end

local entry = redis.call('HGET', entries, id)
if entry and is_delivered(stream, entry, redis.call('HGET', meta, 'delivered')) then
  return { 'running', '' }
end
if not entry and not redis.call('ZSCORE', scheduled, id) then
  return { answer_of_end(failed, completed, id), '' }
end

local head = head_due(scheduled)
local due_text = string.format('%.0f', due)
-- ZADD comes first: it grows, so a server at its memory limit refuses the whole call.
redis.call('ZADD', scheduled, due_text, id)
if entry then
  redis.call('XDEL', stream, entry)
  redis.call('HDEL', entries, id)
  -- A job that was handed back still has a wish to stop. A new due time withdraws it.
  redis.call('HDEL', cancel, id)
end
if due < head then
  wake_mover(wake, queue, due)
end
return { 'rescheduled', due_text }
