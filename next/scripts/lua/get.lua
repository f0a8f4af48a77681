-- get: Return everything that Redis has about one job.
--
-- MOVES  nothing
--
-- KEYS   scheduled   zset    id -> due time, epoch ms
-- KEYS   jobs        hash    id -> envelope JSON
-- KEYS   stream      stream  entries of ready and reserved jobs; consumer group `delayq`
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   recoveries  hash    id -> number of times its worker vanished
-- KEYS   failed      zset    id -> time of failure, epoch ms
-- KEYS   errors      hash    id -> failure JSON
-- KEYS   completed   zset    id -> time to forget the job, epoch ms
-- KEYS   results     hash    id -> result JSON
-- KEYS   cancel      hash    id -> time of the stop request, epoch ms
-- KEYS   meta        hash    field delivered
-- KEYS   progress    hash    id -> last progress report, JSON
--
-- ARGV   id          text    job id
--
-- RETURNS  {'absent'} if the id is unknown. Otherwise a list of these 12 values, with '' for a missing value:
--            state        scheduled | ready | reserved | failed | completed
--            due_ms       due time, epoch ms; only if the state is `scheduled`, `ready` or `reserved`
--            ended_at     failed: time of failure; completed: time to forget the job; both epoch ms
--            envelope     JSON
--            failure      last failure, JSON; if the state is `completed`, a report on the run
--            result       JSON
--            recoveries   number of times that a worker of the job vanished; '0' = never
--            entry        stream entry id; only if the state is `ready` or `reserved`
--            consumer     consumer that has the entry pending
--            idle_ms      time since the consumer received the entry or renewed its lease, in ms
--            cancel_asked time of the stop request, epoch ms
--            progress     last progress report, JSON; only if the state is `ready` or `reserved`
-- COST     O(log n)

-- include: is_delivered
-- include: asks_to_stop
-- include: read_entry

local due = redis.call('ZSCORE', scheduled, id)
local entry = redis.call('HGET', entries, id)
local failed_at = redis.call('ZSCORE', failed, id)
local forget_at = redis.call('ZSCORE', completed, id)

local state = 'absent'
local ended_at = ''
local consumer = ''
local idle_ms = ''
if entry then
  state = is_delivered(stream, entry, redis.call('HGET', meta, 'delivered')) and 'reserved' or 'ready'
  -- In damaged data, a row of `entries` may have a text that is not an entry id.
  if string.match(entry, '^%d+%-%d+$') then
    due = read_entry(stream, entry)['due'] or due
  end
  local pending = redis.pcall('XPENDING', stream, 'delayq', entry, entry, 1)
  if pending[1] then
    consumer = pending[1][2]
    idle_ms = tostring(pending[1][3])
  end
elseif due then
  state = 'scheduled'
elseif failed_at then
  state = 'failed'
  ended_at = failed_at
elseif forget_at then
  state = 'completed'
  ended_at = forget_at
else
  return { state }
end

local asked = redis.call('HGET', cancel, id)

return {
  state,
  due or '',
  ended_at,
  redis.call('HGET', jobs, id) or '',
  redis.call('HGET', errors, id) or '',
  redis.call('HGET', results, id) or '',
  redis.call('HGET', recoveries, id) or '0',
  entry or '',
  consumer,
  idle_ms,
  asks_to_stop(asked) and asked or '',
  entry and redis.call('HGET', progress, id) or '',
}
