-- reschedule: Give a scheduled or ready job a new due time.
--
-- MOVES  scheduled -> scheduled, ready -> scheduled
--
-- KEYS   scheduled   zset    id -> due time, epoch ms
-- KEYS   stream      stream  entries of ready and reserved jobs; consumer group `delayq`
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   failed      zset    id -> time of failure, epoch ms
-- KEYS   completed   zset    id -> time to forget the job, epoch ms
-- KEYS   meta        hash    field delivered
-- KEYS   cancel      hash    id -> time of the stop request, epoch ms
--
-- ARGV   now         clock   epoch ms, for tests; '' = server clock
-- ARGV   queue       text    name of the queue, for the wake-up
-- ARGV   wake        text    pub/sub channel that wakes movers; receives `<queue> <due_ms>`
-- ARGV   id          text    job id
-- ARGV   when        text    '+delay_ms', or due_ms as epoch ms; a due_ms in the past means now
--
-- RETURNS  {answer, due_ms}
--            answer  rescheduled  the job is scheduled for due_ms
--                    running      nothing changed: the job is reserved
--                    failed       nothing changed: the job has failed
--                    finished     nothing changed: the job is completed
--                    unknown      the id is unknown
--            due_ms  new due time, epoch ms; '' if nothing changed
-- COST     O(log n), where n is the number of scheduled jobs

-- include: due_time
-- include: is_delivered
-- include: answer_of_end
-- include: head_due
-- include: wake_mover

local due = due_time(when, now)
if not due then
  return redis.error_reply('ERR reschedule: `when` must be +delay_ms, or due_ms below 2^53, not ' .. when)
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
-- ZADD comes first: it needs memory, so a full server refuses the call before anything is written.
redis.call('ZADD', scheduled, due_text, id)
if entry then
  redis.call('XDEL', stream, entry)
  redis.call('HDEL', entries, id)
  -- A ready job may still have a stop request, from a run before it was handed back. The new due time cancels the stop
  -- request.
  redis.call('HDEL', cancel, id)
end
if due < head then
  wake_mover(wake, queue, due)
end
return { 'rescheduled', due_text }
