-- replace: Schedule jobs even if their ids are taken. A job that already has the id gets the new due time. If `word` is
-- `replaced`, this job also gets the new envelope.
--
-- MOVES  absent -> scheduled, scheduled -> scheduled, ready -> scheduled;
--        if `word` is `replaced`, also failed -> scheduled and completed -> scheduled
--
-- KEYS   jobs        hash    id -> envelope JSON
-- KEYS   scheduled   zset    id -> due time, epoch ms
-- KEYS   stream      stream  entries of ready and reserved jobs; consumer group `delayq`
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   meta        hash    fields schema, lease_ms, shards, delivered, scheduled_total
-- KEYS   unique      hash    digest -> id of the job that owns the unique key
-- KEYS   locks       hash    id -> digest of the job's unique key
-- KEYS   failed      zset    id -> time of failure, epoch ms
-- KEYS   completed   zset    id -> time to forget the job, epoch ms
-- KEYS   errors      hash    id -> failure JSON
-- KEYS   results     hash    id -> result JSON
-- KEYS   recoveries  hash    id -> number of times its worker vanished
-- KEYS   once        string  first reply to this call, kept for once_ms; the key is named `once:<token>`
-- KEYS   cancel      hash    id -> time of the stop request, epoch ms
-- KEYS   outbox      stream  job-end records for the relay
--
-- ARGV   now         clock   epoch ms, for tests; '' = server clock
-- ARGV   word        text    `replaced` = new due time and new envelope; `postponed` = new due time only
-- ARGV   queue       text    name of the queue, for the wake-up
-- ARGV   wake        text    pub/sub channel that wakes movers; receives `<queue> <due_ms>`
-- ARGV   lease_ms    int     lease in ms, stored if the queue is new
-- ARGV   once_ms     int     how long the reply is kept for a repeated call, in ms; 0 = do not keep the reply
-- ARGV   shards      int     number of shards of the queue, as the caller knows it
-- ARGV*  new_jobs    {id envelope when digest}
--          id        1 to 255 printable ASCII characters without spaces
--          envelope  JSON object
--          when      '+delay_ms', or due_ms as epoch ms; a due_ms in the past means now
--          digest    digest of the unique key; '' = no unique key
--
-- RETURNS  One flat list: is_new, then answer, state, due_ms and id for each job, in the order of the call.
--            is_new  '1' if the queue was new, else '0'
--            answer  created    the id was free
--                    replaced   the job with this id got the new due time and the new envelope
--                    postponed  the job with this id got the new due time
--                    kept       nothing changed: another job owns the unique key, or `word` is `postponed` and the job
--                               is failed or completed
--                    running    nothing changed: the job with this id is reserved
--            state   state of the job after this call, or of the job that owns the unique key
--            due_ms  due time, in epoch ms, if `state` is `scheduled`; else ''
--            id      id of the job, or of the job that owns the unique key
--          {'moved', n} if the queue has n shards, not `shards`: nothing was stored. n is 1 if `meta` has no number.
-- COST     O(jobs * log n), where n is the number of scheduled jobs
--
-- The script does not append to the stream. If a job is due now, the script wakes a mover, which calls `promote`.
--
-- A repeated call could change a job again that has run in the meantime, or create a job again that has ended. To
-- prevent this, set once_ms and pass a key `once` whose token belongs to this call alone. Within once_ms, a repeated
-- call then returns the first reply and writes nothing.

-- include: due_time
-- include: is_delivered
-- include: head_due
-- include: end_state
-- include: filled
-- include: leave_follow_up
-- include: count
-- include: wake_mover

-- 1. If this call is a repeated one, because its first reply was lost, return the first reply.

if once_ms > 0 then
  local first_answer = redis.call('GET', once)
  if first_answer then
    return cjson.decode(first_answer)
  end
end

-- 2. Check the due times, and read the state of the queue.

for _, job in ipairs(new_jobs) do
  job.due = due_time(job.when, now)
  if not job.due then
    return redis.error_reply('ERR replace: `when` must be +delay_ms, or due_ms below 2^53, not ' .. job.when)
  end
end

local known = redis.call('HMGET', meta, 'schema', 'delivered', 'shards')
local is_new_queue = not known[1]
local delivered = known[2]
local shards_here = known[3]
if (shards_here or '1') ~= tostring(shards) then
  return { 'moved', shards_here or '1' }
end
local head = head_due(scheduled)
local beside = filled({ errors, results, recoveries, cancel })

-- Frees the old unique key of a job, if it has one, and takes the new one. A `digest` of '' means that the job has no
-- unique key any more.
local function move_lock(id, digest)
  local old_digest = redis.call('HGET', locks, id) or ''
  if old_digest ~= '' and old_digest ~= digest and redis.call('HGET', unique, old_digest) == id then
    redis.call('HDEL', unique, old_digest)
  end
  if digest ~= '' then
    redis.call('HSET', unique, digest, id)
    redis.call('HSET', locks, id, digest)
  elseif old_digest ~= '' then
    redis.call('HDEL', locks, id)
  end
end

-- Gives a job its new envelope and unique key, and deletes the rows of the old job.
local function rewrite(job, has_ended)
  -- The old job will not run. If it was in a chain or a batch, its end is recorded, because the new job takes no part
  -- in the chain or the batch.
  local old_envelope = not has_ended and redis.call('HGET', jobs, job.id) or ''
  if leave_follow_up(outbox, 'cancelled', old_envelope, '') then
    head = math.huge -- wake a mover for any due time, because movers call the relay
  end
  redis.call('HSET', jobs, job.id, job.envelope)
  move_lock(job.id, job.digest)
  if has_ended then
    redis.call('ZREM', failed, job.id)
    redis.call('ZREM', completed, job.id)
  end
  for _, key in ipairs(beside) do
    redis.call('HDEL', key, job.id)
  end
end

-- Returns the id of the job that owns the unique key, or job.id if the key is free. An owner that is not scheduled,
-- ready or reserved does not count (see `schedule`).
local function find_owner(job)
  local owner = job.digest ~= '' and redis.call('HGET', unique, job.digest) or job.id
  local is_alive = redis.call('HEXISTS', entries, owner) == 1 or redis.call('ZSCORE', scheduled, owner)
  return is_alive and owner or job.id
end

-- Returns the state of the job that owns a unique key, and the due time of this job if it is scheduled, else ''.
local function state_of_owner(owner)
  local entry = redis.call('HGET', entries, owner)
  if not entry then
    return 'scheduled', redis.call('ZSCORE', scheduled, owner) or ''
  end
  return is_delivered(stream, entry, delivered) and 'reserved' or 'ready', ''
end

-- 3. Place the jobs.

local reply = { is_new_queue and '1' or '0' }
local earliest = math.huge
local created = 0

for _, job in ipairs(new_jobs) do
  local answer = word
  local state = 'scheduled'
  local due_text = string.format('%.0f', job.due)
  local exists = redis.call('HEXISTS', jobs, job.id) == 1
  local entry = redis.call('HGET', entries, job.id)
  local ended = end_state(failed, completed, job.id)
  local owner = find_owner(job)

  if owner ~= job.id then
    answer = 'kept'
    state, due_text = state_of_owner(owner)
  elseif entry and is_delivered(stream, entry, delivered) then
    answer = 'running'
    state = 'reserved'
    due_text = ''
  elseif ended and word == 'postponed' then
    answer = 'kept'
    state = ended
    due_text = ''
  else
    if not exists then
      answer = 'created'
    end
    -- Replacing a failed or completed job counts as a new job, because the end of the old one has been counted.
    if not exists or ended then
      created = created + 1
    end
    -- ZADD is the first write and needs memory, so a full server refuses the call before anything is written.
    redis.call('ZADD', scheduled, due_text, job.id)
    if not exists or word == 'replaced' then
      rewrite(job, ended)
    end
    if entry then
      redis.call('XDEL', stream, entry)
      redis.call('HDEL', entries, job.id)
    end
    earliest = math.min(earliest, job.due)
  end

  reply[#reply + 1] = answer
  reply[#reply + 1] = state
  reply[#reply + 1] = due_text
  reply[#reply + 1] = owner
end

-- 4. Wake a mover, and update `meta`.

if earliest < head then
  wake_mover(wake, queue, earliest)
end
if is_new_queue then
  redis.call('HSET', meta, 'schema', '1', 'lease_ms', lease_ms, 'shards', shards)
elseif not shards_here then
  redis.call('HSET', meta, 'shards', shards)
end
count(meta, 'scheduled_total', created)
-- Keep the reply, because a job may run and end before a repeated call arrives. The repeated call must not create the
-- job again.
if once_ms > 0 then
  redis.call('SET', once, cjson.encode(reply), 'PX', once_ms)
end
return reply
