-- schedule: put new jobs where they wait, or straight into the stream when they are due now.
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
-- ARGV[2]  taken       text    what to answer for an id that is taken: kept | conflict
-- ARGV[3]  queue       text    its name, for the wake-up
-- ARGV[4]  wake        text    channel
-- ARGV[5]  high_water  int     entries the stream may hold before jobs wait in the set
-- ARGV[6]  lease_ms    int     the lease of a queue seen for the first time
-- ARGV[7]  once_ms     int     0 = a resend may be answered anew
-- ARGV[8]  shards      text    the layout by which the jobs belong to this shard; '?' before it = they may lie here still
-- ARGV[9+] job         4 each  id, envelope, when ('+delay_ms' or due_ms; past = now), lock ('', digest or digest.window_ms)
-- returns  {'1' when meta was new, then 4 each: answer, state, due_ms or '', id of the job that holds the place}; answer:
--          created, `taken`, or unknown (it was only asked for); {'moved', layout} when this shard knows a newer one
-- cost     O(jobs * log n); at most 500 jobs and 1 MB a call, which the client sees to
--
-- Why a single job without a unique key looks at fewer keys beforehand, and one due later not even at how full the
-- stream is: it writes nothing before it has asked those that it writes to.
-- Why HSETNX comes first: at its memory limit Redis refuses a script at its first growing write, so a full server
-- takes a batch whole or not at all. It also asks "taken?" and stores in one step.
-- Why meta is written after it: for the same reason; a queue without jobs needs no lease.
-- Why all due times and all keys are looked at before it: a Lua error half-way does not take back what was written.
-- Why a new stream may start with the next second: the one before was deleted. Who still holds one of its entries must
-- find that id delivered, and never see it given out again. The start is noted as delivered, and the next one lies above
-- it: streams deleted twice in one second must not start alike.
-- Why an id with an entry is taken even if its payload is lost: a worker may hold the entry, and would settle the new job
-- with it. mend takes the payload back from there. A batch looks only when the sums show damage, because it costs.
-- Why `kept` is not remembered when nothing was created: a relay asks again until the unique key is free.
-- Why a window asks only the clock, and also keeps out its own id: its owner may have ended long ago.
-- Why an owner that neither waits nor runs owns nothing: only damage leaves such a lock, and nothing would free it.
-- Why whoever asks for a job leaves its layout here when that is newer: nobody may make the job here by an older one from
-- now on, so the answer `unknown` stays true. Why `once` comes before: what was done by the older one is told again.

local jobs, scheduled, stream, entries, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local unique, locks, failed, completed, once = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local now, taken, once_ms = tonumber(ARGV[1]), ARGV[2], ARGV[7]

local first = once_ms ~= '0' and redis.call('GET', once); if first then return cjson.decode(first) end
if not now then now = redis.call('TIME'); now = now[1] * 1000 + math.floor(now[2] / 1000) end
local dues, texts, waiting, w, latest = {}, {}, { 0, 0 }, 0, now
for i = 11, #ARGV + 2, 4 do
  local when = ARGV[i + 1] and ARGV[i] or ''
  if not dues[when] then
    local due = (tonumber(when) or 0 / 0) + (string.byte(when) == 43 and now or 0)
    if not (due > -2^53 and due < 2^53) then return redis.error_reply('ERR a job is: id, envelope, +delay_ms or due_ms below 2^53, lock') end
    latest, dues[when] = due, due < now and now or due; texts[when] = string.format('%.0f', dues[when])
  end
end
local known, there = redis.call('HMGET', meta, 'schema', 'paused_until_ms', 'delivered', 'shards'), redis.call('EXISTS', stream) == 1
local mine, shards, old = known[4] or '1', ARGV[8], false
if mine ~= shards then shards, old = string.match(shards, '[^?]+'), string.sub(shards, 1, 1) == '?' end
if mine ~= shards and tonumber(string.match(mine, '^(%d+):') or 0) > tonumber(string.match(shards, '^(%d+):') or 0) then return { 'moved', mine } end
local head_due = tonumber(redis.call('ZRANGE', scheduled, '0', '0', 'WITHSCORES')[2] or math.huge)
local one, top = there and not old and #ARGV == 12 and ARGV[#ARGV] == '', known[3]; local outstanding, held = 0, 0
if not one or latest <= now then outstanding, held = redis.call('HLEN', entries), redis.call('XLEN', stream) end
if not one then redis.call('HLEN', unique); redis.call('HLEN', locks) end
local kept = one and 0 or redis.call('ZCARD', scheduled) + redis.call('ZCARD', failed) + redis.call('ZCARD', completed)
local damaged = one or kept + outstanding ~= redis.call('HLEN', jobs)
local till = known[2] and #known[2] <= 15 and string.match(known[2], '^%d+$'); local paused = till and (till == '0' or tonumber(till) > now)
local room = (paused or head_due <= now) and 0 or ARGV[5] - held

local function pad(id) return (string.gsub(id, '%d+', function(d) return string.rep('0', 20 - #d) .. d end)) end
local function delivered(entry)
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local is = {} for i = 1, #group, 2 do is[group[i]] = group[i + 1] end
    local last = is.name == 'delayq' and pad(is['last-delivered-id'])
    if last then return pad(entry) <= last or (top and last < pad(top)) end
  end
  return true
end
local function where(id)
  if w > 0 then w = redis.call('ZADD', scheduled, unpack(waiting, 1, w)) and 0 end
  local entry, due = redis.call('HGET', entries, id), redis.call('ZSCORE', scheduled, id)
  if entry or due then return entry and (delivered(entry) and 'reserved' or 'ready') or 'scheduled', not entry and due or '' end
  return redis.call('ZSCORE', failed, id) and 'failed' or redis.call('ZSCORE', completed, id) and 'completed' or 'absent', ''
end

if not there then
  redis.call('XGROUP', 'CREATE', stream, 'delayq', '0', 'MKSTREAM')
  if top or outstanding > 0 then
    top = string.format('%.0f-0', math.max((redis.call('TIME')[1] + 1) * 1000, tonumber(string.match(top or '0', '%d+')) + 1))
    redis.call('XSETID', stream, top); redis.call('XGROUP', 'SETID', stream, 'delayq', '$')
    redis.call('HSET', meta, 'delivered', top)
  end
end
if mine ~= shards then redis.call('HSET', meta, 'shards', shards) end
local reply, r, created, earliest = { known[1] and '0' or '1' }, 1, 0, math.huge
for i = 9, #ARGV, 4 do
  local id, due, digest, at, word, state, holder, till, span = ARGV[i], dues[ARGV[i + 2]], ARGV[i + 3], texts[ARGV[i + 2]], 'created', 'scheduled'
  if digest ~= '' then
    span, holder, till = tonumber(string.match(digest, '%.(%d+)$')), string.match(redis.call('HGET', unique, digest) or id, '(%S*) ?(%d*)')
    local over = holder == id or string.find('failed completed absent', (where(holder)), 1, true)
    if till == '' and over or till ~= '' and tonumber(till) <= now then holder = nil end
  end
  if old or holder or damaged and redis.call('HEXISTS', entries, id) == 1 or redis.call('HSETNX', jobs, id, ARGV[i + 1]) == 0 then
    word, state, at = taken, where(holder or id)
    if old and state == 'absent' then word = 'unknown' end
  else
    created = created + 1
    if span then redis.call('HSET', unique, digest, id .. string.format(' %.0f', now + span))
    elseif digest ~= '' then redis.call('HSET', unique, digest, id); redis.call('HSET', locks, id, digest) end
    if due <= now and room > 0 then
      state, room = 'ready', room - 1
      redis.call('HSET', entries, id, redis.call('XADD', stream, '*', 'id', id, 'job', ARGV[i + 1], 'due', at, 'recoveries', '0'))
    else
      waiting[w + 1], waiting[w + 2], w, earliest = at, id, w + 2, due < earliest and due or earliest
    end
  end
  reply[r + 1] = word; reply[r + 2] = state; reply[r + 3] = at; reply[r + 4] = holder or id; r = r + 4
end
if w > 0 then redis.call('ZADD', scheduled, unpack(waiting, 1, w)) end
if earliest < head_due then redis.call('PUBLISH', ARGV[4], ARGV[3] .. ' ' .. string.format('%.0f', earliest)) end
if created > 0 then redis.pcall('HINCRBY', meta, 'scheduled_total', created) end
if not known[1] then redis.call('HSET', meta, 'schema', '1', 'lease_ms', ARGV[6], 'shards', shards) end
if once_ms ~= '0' and not old and (created > 0 or taken == 'conflict') then redis.call('SET', once, cjson.encode(reply), 'PX', once_ms) end
return reply
