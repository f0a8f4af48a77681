-- replace: schedule a job whether its id is taken or not, giving a taken one a new due time and, on request, a new
-- payload.
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
-- KEYS[15] outbox      stream  what belongs elsewhere: `todo`, JSON, or `ended` and `job`
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  word        text    replaced (new payload, attempts 0) | postponed (new due, old payload)
-- ARGV[3]  queue       text    its name, for the wake-up
-- ARGV[4]  wake        text    channel
-- ARGV[5]  lease_ms    int     the lease of a queue seen for the first time
-- ARGV[6]  once_ms     int     0 = a resend may be answered anew
-- ARGV[7]  shards      text    the layout by which the jobs belong to this shard; '?' before it = they may lie here still
-- ARGV[8+] job         4 each  id, envelope, when ('+delay_ms' or due_ms; past = now), digest of the unique key or ''
-- returns  {'1' when meta was new, then 4 each: answer, state, due_ms or '', id of the job that holds the place}
--          answer: created, replaced, postponed, kept (failed and completed are not postponed; another job owns the
--          digest), running, or unknown (it was only asked for); {'moved', layout} when this shard knows a newer one
-- cost     O(jobs * log n); at most 500 jobs and 1 MB a call, which the client sees to
--
-- Why all due times and all keys are looked at first: a Lua error half-way does not take back what was written.
-- Why ZADD is the first write: it grows, so a server at its memory limit refuses the whole call.
-- Why the outbox hears of a job that gives way: the one that comes in its place is no link and no member of a batch, and
-- what follows the old one must learn that it will not run.
-- Why it never appends to the stream: the mover does, woken by the new due time; one way in is enough here.
-- Why what waits for a relay wakes the mover too, whatever time is said: it tells the relay.
-- Why a job that may lie here still is replaced where it lies, and not made here: see schedule.
-- Why a job in the place of one that is over counts as scheduled too: the one before was counted as ended.
-- Why `once` keeps every answer but one that is `unknown` throughout: a job that was changed here may have run before
-- the resend, which must not make it anew. Nothing found changes nothing, and the same token may then make the job here.

local jobs, scheduled, stream, entries, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local unique, locks, failed, completed = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local errors, results, recoveries, once, cancel, outbox = KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local now, word, queue, wake = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local lease, once_ms, dues = ARGV[5], tonumber(ARGV[6]), {}

local first = once_ms > 0 and redis.call('GET', once)
if first then return cjson.decode(first) end
if not now then now = redis.call('TIME'); now = now[1] * 1000 + math.floor(now[2] / 1000) end
for i = 8, #ARGV, 4 do
  dues[i] = (tonumber(ARGV[i + 2]) or 0 / 0) + (string.sub(ARGV[i + 2], 1, 1) == '+' and now or 0)
  if not (ARGV[i + 3] and math.abs(dues[i]) <= 9007199254740991) then
    return redis.error_reply('ERR a job is: id, envelope, +delay_ms or due_ms up to 2^53 - 1, digest')
  end
  dues[i] = math.max(dues[i], now)
end
for _, key in ipairs({ jobs, entries, unique, locks }) do redis.call('HLEN', key) end
local sides = {}
for _, key in ipairs({ errors, results, recoveries, cancel }) do
  if redis.call('HLEN', key) > 0 then sides[#sides + 1] = key end
end
for _, key in ipairs({ failed, completed }) do redis.call('ZCARD', key) end; redis.call('XLEN', outbox)
local known = redis.call('HMGET', meta, 'schema', 'delivered', 'shards')
local mine, shards = known[3] or '1', string.match(ARGV[7], '[^?]+')
local epoch, newest = string.match(shards, '^(%d+):') or 0, string.match(mine, '^(%d+):') or 0
if tonumber(newest) > tonumber(epoch) then return { 'moved', mine } end
local head_due = tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2] or math.huge)
local present, top = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1, known[2]

local function pad(id) return (string.gsub(id, '%d+', function(d) return string.rep('0', 20 - #d) .. d end)) end
local function delivered(entry)
  for _, group in ipairs(present and redis.call('XINFO', 'GROUPS', stream) or {}) do
    local is = {} for i = 1, #group, 2 do is[group[i]] = group[i + 1] end
    local last = is.name == 'delayq' and pad(is['last-delivered-id'])
    if last then return pad(entry) <= last or (top and last < pad(top)) end
  end
  return true
end
local function rewrite(id, envelope, digest, over)
  local job, old = not over and redis.call('HGET', jobs, id) or '', redis.call('HGET', locks, id)
  local linked = string.find(job, '"chain":', 1, true) or string.find(job, '"batch":', 1, true)
  if linked then head_due = math.huge; redis.call('XADD', outbox, '*', 'ended', 'cancelled', 'job', job) end
  redis.call('HSET', jobs, id, envelope)
  if old and old ~= digest and redis.call('HGET', unique, old) == id then redis.call('HDEL', unique, old) end
  if digest ~= '' then redis.call('HSET', unique, digest, id) end
  if digest ~= '' and old ~= digest then redis.call('HSET', locks, id, digest) end
  if digest == '' and old then redis.call('HDEL', locks, id) end
  for _, key in ipairs(over and { failed, completed } or {}) do redis.call('ZREM', key, id) end
  for _, key in ipairs(sides) do redis.call('HDEL', key, id) end
end

if mine ~= shards then redis.call('HSET', meta, 'shards', shards) end
local reply, earliest, answered, made = { known[1] and '0' or '1' }, math.huge, false, 0
for i = 8, #ARGV, 4 do
  local id, digest, answer, state, at = ARGV[i], ARGV[i + 3], word, 'scheduled', string.format('%.0f', dues[i])
  local exists, entry = redis.call('HEXISTS', jobs, id) == 1, redis.call('HGET', entries, id)
  local over = (redis.call('ZSCORE', failed, id) and 'failed') or (redis.call('ZSCORE', completed, id) and 'completed')
  local anew = not exists or word == 'replaced'
  local owner = digest ~= '' and redis.call('HGET', unique, digest) or id
  if owner ~= id and redis.call('HEXISTS', entries, owner) == 0 and not redis.call('ZSCORE', scheduled, owner) then owner = id end
  if owner ~= id then
    local theirs, due = redis.call('HGET', entries, owner), redis.call('ZSCORE', scheduled, owner)
    answer, state, at = 'kept', theirs and (delivered(theirs) and 'reserved' or 'ready') or 'scheduled', not theirs and due or ''
  elseif entry and delivered(entry) then
    answer, state, at = 'running', 'reserved', ''
  elseif over and word == 'postponed' then
    answer, state, at = 'kept', over, ''
  elseif shards ~= ARGV[7] and not exists then answer, state, at = 'unknown', 'absent', ''
  else
    if not exists then answer = 'created' end
    if not exists or over then made = made + 1 end
    redis.call('ZADD', scheduled, at, id)
    if anew then rewrite(id, ARGV[i + 1], digest, over) end
    if entry then redis.call('XDEL', stream, entry); redis.call('HDEL', entries, id) end
    earliest = math.min(earliest, dues[i])
  end
  answered = answered or answer ~= 'unknown'
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3], reply[#reply + 4] = answer, state, at, owner
end
if earliest < head_due then redis.call('PUBLISH', wake, queue .. ' ' .. string.format('%.0f', earliest)) end
if not known[1] then redis.call('HSET', meta, 'schema', '1', 'lease_ms', lease, 'shards', shards) end
if made > 0 then redis.pcall('HINCRBY', meta, 'scheduled_total', made) end
if once_ms > 0 and answered then redis.call('SET', once, cjson.encode(reply), 'PX', once_ms) end
return reply
