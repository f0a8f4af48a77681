-- schedule: store new jobs. A job waits in the set `scheduled` until it is due; one that is due now goes straight into
-- the stream.
--
-- moves    absent -> scheduled, absent -> ready
-- KEYS[1]  jobs        hash    id -> envelope
-- KEYS[2]  scheduled   zset    id -> due_ms
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  meta        hash
-- KEYS[6]  unique      hash    digest -> owning id; `id until_ms` for a window
-- KEYS[7]  locks       hash    id -> digest
-- KEYS[8]  failed      zset    id -> failed at
-- KEYS[9]  completed   zset    id -> forget at
-- KEYS[10] once        string  the first answer, kept when once_ms > 0
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  taken       text    the answer for an id that is taken: kept | conflict
-- ARGV[3]  queue       text    its name, for the wake-up
-- ARGV[4]  wake        text    channel of the wake-up
-- ARGV[5]  high_water  int     entries the stream may hold; beyond that jobs wait in the set
-- ARGV[6]  lease_ms    int     the lease of a queue seen for the first time
-- ARGV[7]  once_ms     int     how long to keep the answer for a resend; 0 = do not keep it
-- ARGV[8]  shards      text    the layout of shards the caller knows; '?' in front of it = create nothing, only look
--                              for jobs that an older layout put here
-- ARGV[9+] job         4 each  id, envelope, when ('+delay_ms' or due_ms; past = now), lock ('', digest or
--                              digest.window_ms)
-- returns  {'1' when meta was new, then 4 each: answer, state, due_ms or '', id of the job that holds the place};
--          answer: created, the word of `taken`, or unknown (not here, and the call only looked);
--          {'moved', layout} when this shard knows a newer layout
-- cost     O(jobs * log n); at most 500 jobs and 1 MB a call; the client keeps to that
--
-- The script has four parts: read the arguments, read the queue, create the jobs, tell others. All checks stand before
-- the first write, because Redis does not roll back what a script wrote before an error.

local jobs = KEYS[1]
local scheduled = KEYS[2]
local stream = KEYS[3]
local entries = KEYS[4]
local meta = KEYS[5]
local unique = KEYS[6]
local locks = KEYS[7]
local failed = KEYS[8]
local completed = KEYS[9]
local once = KEYS[10]

-- 1. Read the arguments -----------------------------------------------------------------------------------------------

local call = redis.call
local now = tonumber(ARGV[1])
local taken = ARGV[2]
local once_ms = ARGV[7]

-- A resent call gets its first answer, whatever layout of shards is known by now: what was done here is done.
local first = once_ms ~= '0' and call('GET', once)
if first then
  return cjson.decode(first)
end

if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Work out every due time. Jobs of one call often share their `when`, so each `when` is worked out once.
local due_of = {}
local text_of = {}
local last_due = now
for i = 11, #ARGV + 2, 4 do -- two arguments too far, so that a job with missing arguments is found
  local when = ARGV[i + 1] and ARGV[i] or ''
  if not due_of[when] then
    local due = tonumber(when) or 0 / 0 -- 0 / 0 is no number, and fails the comparison below
    if string.byte(when) == 43 then -- '+': the delay counts from now
      due = due + now
    end
    if not (due > -2^53 and due < 2^53) then
      return redis.error_reply('ERR a job is: id, envelope, +delay_ms or due_ms below 2^53, lock')
    end
    last_due = due
    if due < now then
      due = now
    end
    due_of[when] = due
    text_of[when] = string.format('%.0f', due)
  end
end

-- 2. Read the queue ---------------------------------------------------------------------------------------------------

local known = call('HMGET', meta, 'schema', 'paused_until_ms', 'delivered', 'shards')
local has_stream = call('EXISTS', stream) == 1
local delivered = known[3] -- the highest entry id that was ever delivered

-- A caller with an older layout of shards asks again with the one it is told.
local layout_here = known[4] or '1'
local layout = ARGV[8]
local only_look = false
if layout_here ~= layout then
  only_look = string.sub(layout, 1, 1) == '?'
  layout = string.match(layout, '[^?]+')
  if layout_here ~= layout then
    local epoch_here = tonumber(string.match(layout_here, '^(%d+):') or 0)
    if epoch_here > tonumber(string.match(layout, '^(%d+):') or 0) then
      return { 'moved', layout_here }
    end
  end
end

local head_due = tonumber(call('ZRANGE', scheduled, '0', '0', 'WITHSCORES')[2] or math.huge)

-- The plain case, one job without a unique key, reads only the keys that it writes. If the job is also due later, not
-- even the length of the stream matters.
local is_plain = has_stream and not only_look and #ARGV == 12 and ARGV[#ARGV] == ''
local outstanding = 0
local held = 0
if not is_plain or last_due <= now then
  outstanding = call('HLEN', entries)
  held = call('XLEN', stream)
end

-- When a payload is lost, a worker may still hold the entry of its id, and would settle a new job of that id. So the id
-- counts as taken; `mend` restores the payload from the entry. Asking for each id costs, so a batch of jobs asks only
-- when the numbers of rows show damage.
local ask_entries = is_plain
if not is_plain then
  call('HLEN', unique) -- a key of the wrong type raises its error here, before the first write
  call('HLEN', locks)
  local kept = call('ZCARD', scheduled) + call('ZCARD', failed) + call('ZCARD', completed)
  ask_entries = kept + outstanding ~= call('HLEN', jobs)
end

-- How many jobs may go straight into the stream: none while older jobs are due, and none while the queue is paused.
local paused_until = known[2] and #known[2] <= 15 and string.match(known[2], '^%d+$')
local is_paused = paused_until and (paused_until == '0' or tonumber(paused_until) > now)
local room = 0
if not is_paused and head_due > now then
  room = ARGV[5] - held
end

local waiting = { 0, 0 } -- score, id, score, id …: what goes into `scheduled` with one ZADD
local filled = 0

-- Without the group, or with one that was set back, every entry counts as delivered: a worker may hold it.
local function is_delivered(entry)
  -- Pads both numbers of an entry id with zeros, so that ids compare as text.
  local function pad(entry_id)
    return (string.gsub(entry_id, '%d+', function(digits)
      return string.rep('0', 20 - #digits) .. digits
    end))
  end
  for _, group in ipairs(call('XINFO', 'GROUPS', stream)) do
    local info = {}
    for i = 1, #group, 2 do
      info[group[i]] = group[i + 1]
    end
    if info.name == 'delayq' then
      local last = pad(info['last-delivered-id'])
      return pad(entry) <= last or (delivered and last < pad(delivered))
    end
  end
  return true
end

-- The state of a job, and its due time while it waits in the set.
local function find_state(id)
  if filled > 0 then -- jobs of this call must be found too
    call('ZADD', scheduled, unpack(waiting, 1, filled))
    filled = 0
  end
  local entry = call('HGET', entries, id)
  local due = call('ZSCORE', scheduled, id)
  if entry then
    return is_delivered(entry) and 'reserved' or 'ready', ''
  end
  if due then
    return 'scheduled', due
  end
  if call('ZSCORE', failed, id) then
    return 'failed', ''
  end
  return call('ZSCORE', completed, id) and 'completed' or 'absent', ''
end

-- The job that owns a unique key now, or nil when the key is free.
local function find_owner(digest, id)
  local owner, until_ms = string.match(call('HGET', unique, digest) or id, '(%S*) ?(%d*)')
  -- An owner that neither waits nor runs owns nothing: only damage leaves its lock behind, and nothing else frees it.
  local is_over = owner == id or string.find('failed completed absent', (find_state(owner)), 1, true)
  if until_ms == '' then
    return not is_over and owner or nil
  end
  -- A window ends by the clock alone, whatever became of its owner, and keeps out the owner's own id too.
  return tonumber(until_ms) > now and owner or nil
end

-- 3. Create the jobs --------------------------------------------------------------------------------------------------

if not has_stream then
  call('XGROUP', 'CREATE', stream, 'delayq', '0', 'MKSTREAM')
  -- The stream before was deleted, and a worker may still hold one of its entries. That id must count as delivered and
  -- never be given out again: the new stream starts with the next second. Its start is recorded as delivered, so that
  -- the stream after it starts higher, even within the same second.
  if delivered or outstanding > 0 then
    local next_second = (call('TIME')[1] + 1) * 1000
    delivered = string.format('%.0f-0', math.max(next_second, tonumber(string.match(delivered or '0', '%d+')) + 1))
    call('XSETID', stream, delivered)
    call('XGROUP', 'SETID', stream, 'delayq', '$')
    call('HSET', meta, 'delivered', delivered)
  end
end

-- The caller knows a newer layout. Recording it stops clients with the older one from creating these jobs here later.
if layout_here ~= layout then
  call('HSET', meta, 'shards', layout)
end

local reply = { known[1] and '0' or '1' }
local replied = 1
local created = 0
local earliest = math.huge
for i = 9, #ARGV, 4 do
  local id = ARGV[i]
  local envelope = ARGV[i + 1]
  local when = ARGV[i + 2]
  local digest = ARGV[i + 3]
  local due = due_of[when]
  local due_text = text_of[when]
  local answer = 'created'
  local state = 'scheduled'
  local owner = nil
  if digest ~= '' then
    owner = find_owner(digest, id)
  end

  -- HSETNX asks "is the id taken?" and stores the job in one step. It is the first write that grows: a server at its
  -- memory limit refuses the call here, before anything else was written.
  if only_look or owner
    or ask_entries and call('HEXISTS', entries, id) == 1
    or call('HSETNX', jobs, id, envelope) == 0
  then
    answer = taken
    state, due_text = find_state(owner or id)
    if only_look and state == 'absent' then
      answer = 'unknown'
    end
  else
    created = created + 1
    if digest ~= '' then
      local window_ms = tonumber(string.match(digest, '%.(%d+)$'))
      if window_ms then
        call('HSET', unique, digest, id .. string.format(' %.0f', now + window_ms))
      else
        call('HSET', unique, digest, id)
        call('HSET', locks, id, digest)
      end
    end
    if due <= now and room > 0 then
      state = 'ready'
      room = room - 1
      local entry = call('XADD', stream, '*', 'id', id, 'job', envelope, 'due', due_text, 'recoveries', '0')
      call('HSET', entries, id, entry)
    else
      waiting[filled + 1] = due_text
      waiting[filled + 2] = id
      filled = filled + 2
      if due < earliest then
        earliest = due
      end
    end
  end

  reply[replied + 1] = answer
  reply[replied + 2] = state
  reply[replied + 3] = due_text
  reply[replied + 4] = owner or id
  replied = replied + 4
end
if filled > 0 then
  call('ZADD', scheduled, unpack(waiting, 1, filled))
end

-- 4. Tell others ------------------------------------------------------------------------------------------------------

-- Movers sleep until the time of the set's first job; a job before it wakes them.
if earliest < head_due then
  call('PUBLISH', ARGV[4], ARGV[3] .. ' ' .. string.format('%.0f', earliest))
end
if created > 0 then
  redis.pcall('HINCRBY', meta, 'scheduled_total', created)
end
-- `meta` follows the jobs: a queue that a full server refused needs no lease.
if not known[1] then
  call('HSET', meta, 'schema', '1', 'lease_ms', ARGV[6], 'shards', layout)
end
-- `kept` is not remembered when nothing was created: a relay repeats its call until the unique key is free.
if once_ms ~= '0' and not only_look and (created > 0 or taken == 'conflict') then
  call('SET', once, cjson.encode(reply), 'PX', once_ms)
end
return reply
