-- get: everything that is known about one job.
--
-- moves    nothing
-- KEYS[1]  scheduled   zset    id -> due_ms
-- KEYS[2]  jobs        hash    id -> envelope
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  recoveries  hash    id -> times its worker vanished
-- KEYS[6]  failed      zset    id -> failed at
-- KEYS[7]  errors      hash    id -> failure
-- KEYS[8]  completed   zset    id -> forget at
-- KEYS[9]  results     hash    id -> result
-- KEYS[10] cancel      hash    id -> asked at
-- KEYS[11] meta        hash
-- KEYS[12] progress    hash    id -> the job's last progress report
-- ARGV[1]  id          text
-- returns  {state, due_ms or '', failed or forget at or '', envelope or '', failure or '', result or '', recoveries,
--          entry id or '', consumer or '', idle_ms or '', asked to stop at or '', last progress report or ''};
--          {'absent'} when unknown
-- cost     O(log n)

local scheduled = KEYS[1]
local jobs = KEYS[2]
local stream = KEYS[3]
local entries = KEYS[4]
local recoveries = KEYS[5]
local failed = KEYS[6]
local errors = KEYS[7]
local completed = KEYS[8]
local results = KEYS[9]
local cancel = KEYS[10]
local meta = KEYS[11]
local progress = KEYS[12]
local id = ARGV[1]
local has_stream = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1

-- Pads both numbers of an entry id with zeros, so that ids compare as text.
local function pad(entry_id)
  return (string.gsub(entry_id, '%d+', function(digits)
    return string.rep('0', 20 - #digits) .. digits
  end))
end

-- Without the group, or with one that was set back, every entry counts as delivered: a worker may hold it.
local function is_delivered(entry)
  local top = redis.call('HGET', meta, 'delivered')
  for _, group in ipairs(has_stream and redis.call('XINFO', 'GROUPS', stream) or {}) do
    local info = {}
    for i = 1, #group, 2 do
      info[group[i]] = group[i + 1]
    end
    if info.name == 'delayq' then
      local last = pad(info['last-delivered-id'])
      return pad(entry) <= last or (top and last < pad(top))
    end
  end
  return true
end

local due = redis.call('ZSCORE', scheduled, id)
local entry = redis.call('HGET', entries, id)
local failed_at = redis.call('ZSCORE', failed, id)
local forget_at = redis.call('ZSCORE', completed, id)
local state = 'absent'
local ended_at = ''
local consumer = ''
local idle = ''
if entry then
  state = is_delivered(entry) and 'reserved' or 'ready'
  local found = redis.pcall('XRANGE', stream, entry, entry)[1]
  for i = 1, found and #found[2] or 0, 2 do
    if found[2][i] == 'due' then
      due = found[2][i + 1]
    end
  end
  local rows = redis.pcall('XPENDING', stream, 'delayq', entry, entry, 1)
  if rows[1] then
    consumer = rows[1][2]
    idle = tostring(rows[1][3])
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
  return { 'absent' }
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
  idle,
  redis.call('HGET', cancel, id) or '',
  entry and redis.call('HGET', progress, id) or '',
}
