-- replace: schedule jobs whether their ids are taken or not. A job that has the id gets the new due time and, on
-- request, the new payload.
--
-- MOVES  absent -> scheduled, scheduled -> scheduled, ready -> scheduled;
--        with `replaced` also failed -> scheduled, completed -> scheduled
--
-- KEYS   jobs        hash    id -> envelope
-- KEYS   scheduled   zset    id -> due, epoch ms
-- KEYS   stream      stream  group `delayq`
-- KEYS   entries     hash    id -> entry id, while the job is in the stream
-- KEYS   meta        hash    schema, lease_ms, shards, delivered, counters
-- KEYS   unique      hash    digest -> id of its owner
-- KEYS   locks       hash    id -> digest
-- KEYS   failed      zset    id -> failed at, epoch ms
-- KEYS   completed   zset    id -> forget at, epoch ms
-- KEYS   errors      hash    id -> failure, JSON
-- KEYS   results     hash    id -> result, JSON
-- KEYS   recoveries  hash    id -> times its worker vanished
-- KEYS   once        string  the first answer to this call, while once_ms lasts
-- KEYS   cancel      hash    id -> asked to stop at, epoch ms
-- KEYS   outbox      stream  ends of jobs, for the relay
--
-- ARGV   now         clock
-- ARGV   word        text    replaced (new payload, attempts 0) | postponed (new due time, old payload)
-- ARGV   queue       text    its name, for the wake-up
-- ARGV   wake        text    channel of the wake-up
-- ARGV   lease_ms    int     lease of a queue that is seen for the first time
-- ARGV   once_ms     int     how long the answer is kept for a call that is sent again; 0 = not at all
-- ARGV   shards      int     over how many shards the caller spreads the queue
-- ARGV*  new_jobs    {id envelope when digest}   when: '+delay_ms', or due_ms, in the past = now; digest of the unique
--                    key, or ''
--
-- RETURNS  {'1' for a new queue or '0', then for each job: answer, state, due_ms or '', id of the job in its place}.
--          answer: created, replaced, postponed, kept (failed and completed jobs are not postponed; another job owns
--          the unique key) or running. {'moved', n} when the queue has n shards
-- COST     O(jobs * log n)
--
-- It never appends to the stream: the new due time wakes a mover, which does.

-- include: due_time
-- include: is_delivered
-- include: head_due
-- include: end_state
-- include: filled
-- include: leave_follow_up
-- include: count
-- include: wake_mover

-- 1. A call that is sent again, because its answer was lost, gets its first answer.

if once_ms > 0 then
  local first_answer = redis.call('GET', once)
  if first_answer then
    return cjson.decode(first_answer)
  end
end

-- 2. Check the times and read the queue.

for _, job in ipairs(new_jobs) do
  job.due = due_time(job.when, now)
  if not job.due then
    return redis.error_reply('ERR replace: when is +delay_ms or due_ms below 2^53, not ' .. job.when)
  end
end

local known = redis.call('HMGET', meta, 'schema', 'delivered', 'shards')
local is_new_queue = not known[1]
local delivered = known[2]
local shards_here = known[3]
if shards_here and shards_here ~= tostring(shards) then
  return { 'moved', shards_here }
end
local head = head_due(scheduled)
local beside = filled({ errors, results, recoveries, cancel })

-- Moves the unique key of a job from its old digest to the new one; either may be ''.
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

-- Gives a job its new payload and unique key, and drops what belonged to the old one.
local function rewrite(job, has_ended)
  -- The new job is no link of a chain and no member of a batch. What follows the old one learns that it will not run.
  local old_envelope = not has_ended and redis.call('HGET', jobs, job.id) or ''
  if leave_follow_up(outbox, 'cancelled', old_envelope, '') then
    head = math.huge -- wake a mover whatever the due time: it calls a relay
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

-- The job that owns the unique key. An owner that neither waits nor runs owns nothing (see schedule).
local function find_owner(job)
  local owner = job.digest ~= '' and redis.call('HGET', unique, job.digest) or job.id
  local is_alive = redis.call('HEXISTS', entries, owner) == 1 or redis.call('ZSCORE', scheduled, owner)
  return is_alive and owner or job.id
end

-- Where a job is that another one must make way for: its state, and its due time while it waits.
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
    -- A job in the place of one that ended counts as scheduled too: the one before was counted when it ended.
    if not exists or ended then
      created = created + 1
    end
    -- ZADD is the first write: it grows, so a server at its memory limit refuses the whole call.
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

-- 4. Tell others.

if earliest < head then
  wake_mover(wake, queue, earliest)
end
if is_new_queue then
  redis.call('HSET', meta, 'schema', '1', 'lease_ms', lease_ms, 'shards', shards)
elseif not shards_here then
  redis.call('HSET', meta, 'shards', shards)
end
count(meta, 'scheduled_total', created)
-- A job that was changed here may have run before the call is sent again, which must not create it anew.
if once_ms > 0 then
  redis.call('SET', once, cjson.encode(reply), 'PX', once_ms)
end
return reply
