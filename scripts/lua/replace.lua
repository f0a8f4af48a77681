-- replace: schedule a job whether its id is taken or not. A job that has the id gets the new due time and, on request,
-- the new payload.
--
-- moves    absent -> scheduled, scheduled -> scheduled, ready -> scheduled;
--          with `replaced` also failed -> scheduled, completed -> scheduled
-- KEYS[1]  jobs        hash    id -> envelope
-- KEYS[2]  scheduled   zset    id -> due_ms
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  meta        hash
-- KEYS[6]  unique      hash    digest -> owning id
-- KEYS[7]  locks       hash    id -> digest
-- KEYS[8]  failed      zset    id -> failed at
-- KEYS[9]  completed   zset    id -> forget at
-- KEYS[10] errors      hash    id -> failure
-- KEYS[11] results     hash    id -> result
-- KEYS[12] recoveries  hash    id -> times its worker vanished
-- KEYS[13] once        string  the first answer, kept when once_ms > 0
-- KEYS[14] cancel      hash    id -> asked at
-- KEYS[15] outbox      stream  follow-ups for other queues: `todo` (JSON), or `ended` and `job`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  word        text    replaced (new payload, attempts 0) | postponed (new due, old payload)
-- ARGV[3]  queue       text    its name, for the wake-up
-- ARGV[4]  wake        text    channel of the wake-up
-- ARGV[5]  lease_ms    int     the lease of a queue seen for the first time
-- ARGV[6]  once_ms     int     how long to keep the answer for a resend; 0 = do not keep it
-- ARGV[7]  shards      text    the layout of shards the caller knows; '?' in front of it = create nothing, only look
--                              for jobs that an older layout put here
-- ARGV[8+] job         4 each  id, envelope, when ('+delay_ms' or due_ms; past = now), digest of the unique key or ''
-- returns  {'1' when meta was new, then 4 each: answer, state, due_ms or '', id of the job that holds the place};
--          answer: created, replaced, postponed, kept (failed and completed are not postponed; another job owns the
--          digest), running, or unknown (not here, and the call only looked); {'moved', layout} when this shard knows a
--          newer layout
-- cost     O(jobs * log n); at most 500 jobs and 1 MB a call; the client keeps to that
--
-- It never appends to the stream: the new due time wakes a mover, which does.

local jobs = KEYS[1]
local scheduled = KEYS[2]
local stream = KEYS[3]
local entries = KEYS[4]
local meta = KEYS[5]
local unique = KEYS[6]
local locks = KEYS[7]
local failed = KEYS[8]
local completed = KEYS[9]
local errors = KEYS[10]
local results = KEYS[11]
local recoveries = KEYS[12]
local once = KEYS[13]
local cancel = KEYS[14]
local outbox = KEYS[15]

local now = tonumber(ARGV[1])
local word = ARGV[2]
local queue = ARGV[3]
local wake = ARGV[4]
local lease = ARGV[5]
local once_ms = tonumber(ARGV[6])

local first = once_ms > 0 and redis.call('GET', once)
if first then
  return cjson.decode(first)
end
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- All arguments and all keys are read before the first write: Redis does not roll back what a script wrote.
local due_of = {}
for i = 8, #ARGV, 4 do
  due_of[i] = (tonumber(ARGV[i + 2]) or 0 / 0) + (string.sub(ARGV[i + 2], 1, 1) == '+' and now or 0)
  if not (ARGV[i + 3] and math.abs(due_of[i]) <= 9007199254740991) then
    return redis.error_reply('ERR a job is: id, envelope, +delay_ms or due_ms up to 2^53 - 1, digest')
  end
  due_of[i] = math.max(due_of[i], now)
end
for _, key in ipairs({ jobs, entries, unique, locks }) do
  redis.call('HLEN', key)
end
local side = {}
for _, key in ipairs({ errors, results, recoveries, cancel }) do
  if redis.call('HLEN', key) > 0 then
    side[#side + 1] = key
  end
end
redis.call('ZCARD', failed)
redis.call('ZCARD', completed)
redis.call('XLEN', outbox)

local known = redis.call('HMGET', meta, 'schema', 'delivered', 'shards')
local top = known[2]
local layout_here = known[3] or '1'
local layout = string.match(ARGV[7], '[^?]+')
local only_look = layout ~= ARGV[7]
local epoch = string.match(layout, '^(%d+):') or 0
local epoch_here = string.match(layout_here, '^(%d+):') or 0
if tonumber(epoch_here) > tonumber(epoch) then
  return { 'moved', layout_here }
end
local head_due = tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2] or math.huge)
local has_stream = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1

-- Pads both numbers of an entry id with zeros, so that ids compare as text.
local function pad(entry_id)
  return (string.gsub(entry_id, '%d+', function(digits)
    return string.rep('0', 20 - #digits) .. digits
  end))
end

-- Without the group, or with one that was set back, every entry counts as delivered: a worker may hold it.
local function is_delivered(entry)
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

-- Gives a job its new payload and unique key, and drops what belonged to the old one. `ended` is the old job's state
-- when it is failed or completed.
local function rewrite(id, envelope, digest, ended)
  local old_job = not ended and redis.call('HGET', jobs, id) or ''
  local old_digest = redis.call('HGET', locks, id)
  -- The new job is not a link of a chain or a member of a batch. What follows the old one learns that it will not run.
  if string.find(old_job, '"chain":', 1, true) or string.find(old_job, '"batch":', 1, true) then
    head_due = math.huge -- wake a mover whatever the due time: it calls a relay
    redis.call('XADD', outbox, '*', 'ended', 'cancelled', 'job', old_job)
  end
  redis.call('HSET', jobs, id, envelope)
  if old_digest and old_digest ~= digest and redis.call('HGET', unique, old_digest) == id then
    redis.call('HDEL', unique, old_digest)
  end
  if digest ~= '' then
    redis.call('HSET', unique, digest, id)
  end
  if digest ~= '' and old_digest ~= digest then
    redis.call('HSET', locks, id, digest)
  end
  if digest == '' and old_digest then
    redis.call('HDEL', locks, id)
  end
  if ended then
    redis.call('ZREM', failed, id)
    redis.call('ZREM', completed, id)
  end
  for _, key in ipairs(side) do
    redis.call('HDEL', key, id)
  end
end

-- The caller knows a newer layout. Recording it stops clients with the older one from creating these jobs here later.
if layout_here ~= layout then
  redis.call('HSET', meta, 'shards', layout)
end

local reply = { known[1] and '0' or '1' }
local earliest = math.huge
local has_answer = false
local created = 0
for i = 8, #ARGV, 4 do
  local id = ARGV[i]
  local digest = ARGV[i + 3]
  local answer = word
  local state = 'scheduled'
  local due_text = string.format('%.0f', due_of[i])
  local exists = redis.call('HEXISTS', jobs, id) == 1
  local entry = redis.call('HGET', entries, id)
  local ended = (redis.call('ZSCORE', failed, id) and 'failed') or (redis.call('ZSCORE', completed, id) and 'completed')

  -- An owner of the unique key that neither waits nor runs owns nothing (see schedule).
  local owner = digest ~= '' and redis.call('HGET', unique, digest) or id
  if owner ~= id and redis.call('HEXISTS', entries, owner) == 0 and not redis.call('ZSCORE', scheduled, owner) then
    owner = id
  end

  if owner ~= id then
    local owner_entry = redis.call('HGET', entries, owner)
    local owner_due = redis.call('ZSCORE', scheduled, owner)
    answer = 'kept'
    if owner_entry then
      state = is_delivered(owner_entry) and 'reserved' or 'ready'
    end
    due_text = not owner_entry and owner_due or ''
  elseif entry and is_delivered(entry) then
    answer = 'running'
    state = 'reserved'
    due_text = ''
  elseif ended and word == 'postponed' then
    answer = 'kept'
    state = ended
    due_text = ''
  elseif only_look and not exists then
    answer = 'unknown'
    state = 'absent'
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
    redis.call('ZADD', scheduled, due_text, id)
    if not exists or word == 'replaced' then
      rewrite(id, ARGV[i + 1], digest, ended)
    end
    if entry then
      redis.call('XDEL', stream, entry)
      redis.call('HDEL', entries, id)
    end
    earliest = math.min(earliest, due_of[i])
  end
  has_answer = has_answer or answer ~= 'unknown'
  reply[#reply + 1] = answer
  reply[#reply + 1] = state
  reply[#reply + 1] = due_text
  reply[#reply + 1] = owner
end

-- Movers sleep until the time of the set's first job; a job before it wakes them.
if earliest < head_due then
  redis.call('PUBLISH', wake, queue .. ' ' .. string.format('%.0f', earliest))
end
if not known[1] then
  redis.call('HSET', meta, 'schema', '1', 'lease_ms', lease, 'shards', layout)
end
if created > 0 then
  redis.pcall('HINCRBY', meta, 'scheduled_total', created)
end
-- A job that was changed here may have run before the resend, which must not create it anew. A call that found nothing
-- is not kept: the same token may then create the job here.
if once_ms > 0 and has_answer then
  redis.call('SET', once, cjson.encode(reply), 'PX', once_ms)
end
return reply
