-- later: put one new job that is due later where it waits: what schedule does, for the case that nearly all are.
--
-- moves    absent -> scheduled
-- KEYS[1]  jobs       hash    id -> envelope
-- KEYS[2]  scheduled  zset    id -> due_ms
-- KEYS[3]  entries    hash    id -> entry id
-- KEYS[4]  meta       hash
-- ARGV[1]  now_ms     int     '' = the server's clock
-- ARGV[2]  queue      text    its name, for the wake-up
-- ARGV[3]  wake       text    channel
-- ARGV[4]  shards     text    the layout by which the job belongs to this shard
-- ARGV[5]  id         text
-- ARGV[6]  envelope   bytes
-- ARGV[7]  when       text    '+delay_ms' or due_ms
-- returns  due_ms, the job is made; or nil, nothing was done and schedule has to be asked
-- cost     O(log n)
--
-- Why it exists beside schedule: three quarters of a lone schedule were questions whose answer is nearly always the same.
-- Here each of them costs the one job that it is about a second call, and all others nothing.
-- Why nil says no more: an id that is taken, a queue that is new, another layout, a time that is none or has come:
-- schedule tells them apart, and looks again, as each may have changed.
-- Why the same call twice does no harm: the second finds the id taken, and schedule answers `kept`.
-- Why the entries are asked: a worker may hold a job whose payload is lost, and would settle the new one with it.
-- Why HSETNX comes first: it is the growing write that a full server refuses, and asks and stores in one step.

local jobs, scheduled, entries, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call, now, id, when = redis.call, tonumber(ARGV[1]), ARGV[5], ARGV[7]

if not now then now = call('TIME'); now = now[1] * 1000 + math.floor(now[2] / 1000) end
local due = tonumber(when) or 0 / 0
if string.byte(when) == 43 then due = due + now end
if not (due > now and due < 2^53) then return false end
local known = call('HMGET', meta, 'schema', 'shards')
if not known[1] or known[2] ~= ARGV[4] or call('HEXISTS', entries, id) == 1 then return false end
local head = call('ZRANGE', scheduled, '0', '0', 'WITHSCORES')[2]
if call('HSETNX', jobs, id, ARGV[6]) == 0 then return false end
local text = string.format('%.0f', due)
call('ZADD', scheduled, text, id)
if not head or due < tonumber(head) then call('PUBLISH', ARGV[3], ARGV[2] .. ' ' .. text) end
redis.pcall('HINCRBY', meta, 'scheduled_total', '1')
return text
