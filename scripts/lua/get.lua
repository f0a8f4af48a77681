-- get: everything known about one job.
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
-- KEYS[12] progress    hash    id -> what the job told last
-- ARGV[1]  id          text
-- returns  {state, due_ms or '', failed or forget at or '', envelope or '', failure or '', result or '', recoveries,
--          entry id or '', consumer or '', idle_ms or '', asked to stop at or '', what it told last or ''}; {'absent'}
--          when unknown
-- cost     O(log n)

local scheduled, jobs, stream, entries, recoveries, failed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local errors, completed, results, cancel, meta, progress = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local id = ARGV[1]
local present = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1

local function pad(id)
  return (string.gsub(id, '%d+', function(digits) return string.rep('0', 20 - #digits) .. digits end))
end
local function delivered(entry)
  local top = redis.call('HGET', meta, 'delivered')
  for _, group in ipairs(present and redis.call('XINFO', 'GROUPS', stream) or {}) do
    local is = {}
    for i = 1, #group, 2 do is[group[i]] = group[i + 1] end
    local last = is.name == 'delayq' and pad(is['last-delivered-id'])
    if last then return pad(entry) <= last or (top and last < pad(top)) end
  end
  return true
end
local state, due, at = 'absent', redis.call('ZSCORE', scheduled, id), ''
local entry, consumer, idle = redis.call('HGET', entries, id), '', ''
local failed_at, forget_at = redis.call('ZSCORE', failed, id), redis.call('ZSCORE', completed, id)
if entry then
  state = delivered(entry) and 'reserved' or 'ready'
  local found = redis.pcall('XRANGE', stream, entry, entry)[1]
  for i = 1, found and #found[2] or 0, 2 do
    if found[2][i] == 'due' then due = found[2][i + 1] end
  end
  local rows = redis.pcall('XPENDING', stream, 'delayq', entry, entry, 1)
  if rows[1] then consumer, idle = rows[1][2], tostring(rows[1][3]) end
elseif due then
  state = 'scheduled'
elseif failed_at or forget_at then
  state, at = failed_at and 'failed' or 'completed', failed_at or forget_at
else
  return { 'absent' }
end
return { state, due or '', at, redis.call('HGET', jobs, id) or '', redis.call('HGET', errors, id) or '',
  redis.call('HGET', results, id) or '', redis.call('HGET', recoveries, id) or '0', entry or '', consumer, idle,
  redis.call('HGET', cancel, id) or '', entry and redis.call('HGET', progress, id) or '' }
