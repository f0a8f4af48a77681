-- run_now: Make a scheduled job ready now.
--
-- MOVES  scheduled -> ready;
--        scheduled -> scheduled, due now, if the queue is paused, the stream full or missing, or the envelope lost
--
-- KEYS   scheduled   zset    id -> due time, epoch ms
-- KEYS   jobs        hash    id -> envelope JSON
-- KEYS   stream      stream  entries of ready and reserved jobs; consumer group `delayq`
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   recoveries  hash    id -> number of times its worker vanished
-- KEYS   failed      zset    id -> time of failure, epoch ms
-- KEYS   completed   zset    id -> time to forget the job, epoch ms
-- KEYS   meta        hash    fields paused_until_ms, delivered
--
-- ARGV   now         clock   epoch ms, for tests; '' = server clock
-- ARGV   queue       text    name of the queue, for the wake-up
-- ARGV   wake        text    pub/sub channel that wakes movers; receives `<queue> <now>` if the job stays scheduled
-- ARGV   high_water  int     maximum number of stream entries
-- ARGV   id          text    job id
--
-- RETURNS  {answer, due_ms}
--            answer  ready      the job is in the stream
--                    scheduled  the job is due now; `promote` will append it, or move it to `failed` if its envelope
--                               is lost
--                    running    nothing changed: the job is reserved
--                    failed     nothing changed: the job has failed; use `retry`
--                    finished   nothing changed: the job is completed
--                    unknown    the id is unknown
--            due_ms  due time, epoch ms; '' if nothing changed
-- COST     O(log n), where n is the number of scheduled jobs

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

-- In these cases, the job stays scheduled, and the mover appends it later, or fails it if its envelope is lost. This
-- script does not create a missing stream, because only `schedule`, `promote` and `tidy` create a stream together with
-- its group.
if is_paused(known[1], now) or is_full or not has_stream or not envelope then
  local head = head_due(scheduled)
  redis.call('ZADD', scheduled, now_text, id)
  if now < head then
    wake_mover(wake, queue, now)
  end
  return { 'scheduled', now_text }
end

-- An overdue job keeps its due time, so that its lateness stays known. A due time before 1970 counts as now.
local since = now_text
if tonumber(due) >= 0 then
  since = string.format('%.0f', math.min(now, tonumber(due)))
end
local times = redis.call('HGET', recoveries, id) or '0'
-- XADD comes first: it needs memory, so a full server refuses the call before anything is written.
local new_entry = append_entry(stream, id, envelope, since, times)
redis.call('HSET', entries, id, new_entry)
redis.call('ZREM', scheduled, id)
return { 'ready', since }
