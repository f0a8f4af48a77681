-- get: everything that is known about one job.
--
-- MOVES  nothing
--
-- KEYS   scheduled   zset    id -> due, epoch ms
-- KEYS   jobs        hash    id -> envelope
-- KEYS   stream      stream  group `delayq`
-- KEYS   entries     hash    id -> entry id, while the job is in the stream
-- KEYS   recoveries  hash    id -> times its worker vanished
-- KEYS   failed      zset    id -> failed at, epoch ms
-- KEYS   errors      hash    id -> failure, JSON
-- KEYS   completed   zset    id -> forget at, epoch ms
-- KEYS   results     hash    id -> result, JSON
-- KEYS   cancel      hash    id -> asked to stop at, epoch ms
-- KEYS   meta        hash    delivered
-- KEYS   progress    hash    id -> last progress report, JSON
--
-- ARGV   id          text
--
-- RETURNS  {state, due_ms, failed or forget at, envelope, failure, result, recoveries, entry id, consumer, idle_ms,
--          asked to stop at, last progress report}; '' for what is not there. {'absent'} when the id is unknown
-- COST     O(log n)

-- include: is_delivered
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
  -- Damage may leave a row that is no entry id.
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
  redis.call('HGET', cancel, id) or '',
  entry and redis.call('HGET', progress, id) or '',
}
