-- later: store new plain jobs that are due later. It does what schedule does, for the most frequent case.
--
-- moves    absent -> scheduled
-- KEYS[1]  jobs       hash    id -> envelope
-- KEYS[2]  scheduled  zset    id -> due_ms
-- KEYS[3]  entries    hash    id -> entry id
-- KEYS[4]  meta       hash
-- ARGV[1]  now_ms     int     '' = the server's clock
-- ARGV[2]  queue      text    its name, for the wake-up
-- ARGV[3]  wake       text    channel of the wake-up
-- ARGV[4]  shards     text    the layout of shards the caller knows
-- ARGV[5+] job        3 each  id, envelope, when ('+delay_ms' or due_ms)
-- returns  now_ms, from which the delays count: all jobs are created; or nil: nothing was done, call schedule
-- cost     O(jobs * log n); at most 500 jobs and 1 MB a call; the client keeps to that
--
-- Three quarters of a lone schedule were questions whose answers are nearly always the same. This script only asks
-- whether the jobs are plain. If not, it answers nil and writes nothing: an id is taken or given twice, the queue is
-- new, the layout is another one, or a time is wrong or has come. Then schedule finds out which, with one more call. A
-- call that is sent twice finds its ids taken, and schedule answers `kept`.

local jobs, scheduled, entries, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call = redis.call
local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local known = call('HMGET', meta, 'schema', 'shards')
if not known[1] or known[2] ~= ARGV[4] then
  return false
end
local head_due = tonumber(call('ZRANGE', scheduled, '0', '0', 'WITHSCORES')[2] or math.huge)

-- The due time in ms; nil when it is wrong, or has come.
local function read_due(when)
  local due = tonumber(when) or 0 / 0 -- 0 / 0 is no number, and fails the comparison below
  if string.byte(when) == 43 then -- '+': the delay counts from now
    due = due + now
  end
  return due > now and due < 2^53 and due or nil
end

-- Wakes a mover when the set has a new first job, and counts the jobs.
local function tell(earliest, count)
  if earliest < head_due then
    call('PUBLISH', ARGV[3], ARGV[2] .. ' ' .. string.format('%.0f', earliest))
  end
  redis.pcall('HINCRBY', meta, 'scheduled_total', count)
  return string.format('%.0f', now)
end

-- One job alone needs no tables, which cost a seventh of the work. HSETNX asks "is the id taken?" and stores in one
-- step.
if #ARGV == 7 then
  local id, envelope, when = unpack(ARGV, 5)
  local due = read_due(when)
  -- A worker may hold the entry of a job whose payload is lost, and would settle the new job with it.
  if not due or call('HEXISTS', entries, id) == 1 or call('HSETNX', jobs, id, envelope) == 0 then
    return false
  end
  call('ZADD', scheduled, string.format('%.0f', due), id)
  return tell(due, '1')
end

local text_of = {} -- when -> due_ms as text: jobs of one call often share their `when`
local seen = {}
local ids = {}
local rows = {}
local waiting = {}
local count = 0
local filled = 0
local earliest = math.huge
for i = 5, #ARGV, 3 do
  local id = ARGV[i]
  local when = ARGV[i + 2] or ''
  local due_text = text_of[when]
  if not due_text then
    local due = read_due(when)
    if not due then
      return false
    end
    earliest = math.min(earliest, due)
    due_text = string.format('%.0f', due)
    text_of[when] = due_text
  end
  if seen[id] then
    return false
  end
  seen[id] = true
  count = count + 1
  ids[count] = id
  rows[filled + 1] = id
  rows[filled + 2] = ARGV[i + 1]
  waiting[filled + 1] = due_text
  waiting[filled + 2] = id
  filled = filled + 2
end
for _, key in ipairs({ entries, jobs }) do
  for _, taken in ipairs(call('HMGET', key, unpack(ids))) do
    if taken then
      return false
    end
  end
end

-- HSET comes first: it grows, so a server at its memory limit refuses the call before anything was written.
call('HSET', jobs, unpack(rows))
call('ZADD', scheduled, unpack(waiting))
return tell(earliest, count)
