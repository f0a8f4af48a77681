-- later: put new jobs that are due later where they wait: what schedule does, for the case that nearly all are.
--
-- moves    absent -> scheduled
-- KEYS[1]  jobs       hash    id -> envelope
-- KEYS[2]  scheduled  zset    id -> due_ms
-- KEYS[3]  entries    hash    id -> entry id
-- KEYS[4]  meta       hash
-- ARGV[1]  now_ms     int     '' = the server's clock
-- ARGV[2]  queue      text    its name, for the wake-up
-- ARGV[3]  wake       text    channel
-- ARGV[4]  shards     text    the layout by which the jobs belong to this shard
-- ARGV[5+] job        3 each  id, envelope, when ('+delay_ms' or due_ms)
-- returns  now_ms that the delays count from, all are made; or nil, nothing was done and schedule has to be asked
-- cost     O(jobs * log n); at most 500 jobs and 1 MB a call, which the client sees to
--
-- Why it exists beside schedule: three quarters of a lone schedule were questions whose answer is nearly always the
-- same, and of many at once half went into words that say the same of each, there and back. Here all that is asked is
-- whether they are plain, and one that is not costs them a second call.
-- Why nil says no more: an id that is taken or said twice, a queue that is new, another layout, a time that is none or
-- has come: schedule tells them apart, and looks again, as each may have changed.
-- Why the same call twice does no harm: the second finds the ids taken, and schedule answers `kept`.
-- Why the entries are asked: a worker may hold a job whose payload is lost, and would settle the new one with it.
-- Why HSET and HSETNX come before other writes: they are the growing ones that a full server refuses.
-- Why one by itself has a way of its own: HSETNX asks and stores in one step, and tables for one are a seventh of the
-- work.

local jobs, scheduled, entries, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call, now = redis.call, tonumber(ARGV[1])

if not now then now = call('TIME'); now = now[1] * 1000 + math.floor(now[2] / 1000) end
local known = call('HMGET', meta, 'schema', 'shards')
if not known[1] or known[2] ~= ARGV[4] then return false end
local head = tonumber(call('ZRANGE', scheduled, '0', '0', 'WITHSCORES')[2] or math.huge)

local function due_of(when)
  local due = tonumber(when) or 0 / 0
  if string.byte(when) == 43 then due = due + now end
  return due > now and due < 2^53 and due or nil
end
local function told(first, many)
  if first < head then call('PUBLISH', ARGV[3], ARGV[2] .. ' ' .. string.format('%.0f', first)) end
  redis.pcall('HINCRBY', meta, 'scheduled_total', many)
  return string.format('%.0f', now)
end

if #ARGV == 7 then
  local id, envelope, when = unpack(ARGV, 5)
  local due = due_of(when)
  if not due or call('HEXISTS', entries, id) == 1 or call('HSETNX', jobs, id, envelope) == 0 then return false end
  call('ZADD', scheduled, string.format('%.0f', due), id)
  return told(due, '1')
end

local texts, said, ids, rows, waiting, n, first = {}, {}, {}, {}, {}, 0, math.huge
for i = 5, #ARGV, 3 do
  local id, when = ARGV[i], ARGV[i + 2] or ''
  if not texts[when] then
    local due = due_of(when)
    if not due then return false end
    first, texts[when] = math.min(first, due), string.format('%.0f', due)
  end
  if said[id] then return false end
  said[id], ids[n + 1], n = true, id, n + 1
  rows[2 * n - 1], rows[2 * n], waiting[2 * n - 1], waiting[2 * n] = id, ARGV[i + 1], texts[when], id
end
for _, key in ipairs({ entries, jobs }) do
  for _, taken in ipairs(call('HMGET', key, unpack(ids))) do if taken then return false end end
end
call('HSET', jobs, unpack(rows))
call('ZADD', scheduled, unpack(waiting))
return told(first, n)
