-- debounce: schedule a job in the place of the one with the same key that has not started, and start its wait anew.
--
-- moves    absent -> scheduled; the one it takes the place of: scheduled -> absent, ready -> absent
-- KEYS[1]  jobs        hash    id -> envelope
-- KEYS[2]  scheduled   zset    id -> due_ms
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  meta        hash
-- KEYS[6]  unique      hash    digest -> owning id; `id until_ms` for a window
-- KEYS[7]  locks       hash    id -> digest
-- KEYS[8]  errors      hash    id -> failure
-- KEYS[9]  recoveries  hash    id -> times its worker vanished
-- KEYS[10] cancel      hash    id -> asked at
-- KEYS[11] once        string  the first answer, kept when once_ms > 0
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  queue       text    its name, for the wake-up
-- ARGV[3]  wake        text    channel
-- ARGV[4]  lease_ms    int     the lease of a queue seen for the first time
-- ARGV[5]  once_ms     int     0 = a resend may be answered anew
-- ARGV[6]  id          text
-- ARGV[7]  envelope    json
-- ARGV[8]  wait_ms     int     it is due when so long no other came
-- ARGV[9]  most_ms     int     or so long after the first; 0 = however long
-- ARGV[10] digest      text    of the key
-- ARGV[11] shards      text    the layout by which the key belongs to this shard; '?' before it = it may lie here still
-- returns  {'1' when meta was new, answer, due_ms, id of the job whose place it took or ''}; answer: created, debounced
--          kept (the id is taken), or unknown (none waits, and one was only asked for); {'moved', layout} when this
--          shard knows a newer one
-- cost     O(log n)
--
-- Why a job that was delivered is left alone: it may run already, with what it was given. This one begins a new wait,
-- and owns the key from now on; so nothing that was dispatched is lost.
-- Why the latest due time is a window of the key (`digest.most`): only time frees it, so no verb has to know it, and
-- `sweep` drops it. One that was swept is over, so the job is due at once.
-- Why the place of one that waits where the key lay before is taken there: in one step, or one of both could be lost.
-- Why HSET of jobs comes first: it is the write that grows, so a full server refuses the whole call.

local jobs, scheduled, stream, entries, meta, unique = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local locks, errors, recoveries, cancel, once = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local now, once_ms, id, envelope = tonumber(ARGV[1]), tonumber(ARGV[5]), ARGV[6], ARGV[7]
local wait, most, digest = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]
local first = once_ms > 0 and redis.call('GET', once)
if first then return cjson.decode(first) end
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if not (wait and most and now + wait + most <= 9007199254740991) then
  return redis.error_reply('ERR a wait is: wait_ms, most_ms, both up to 2^53 - 1')
end
for _, key in ipairs({ jobs, entries, unique, locks, errors, recoveries, cancel }) do redis.call('HLEN', key) end
local known = redis.call('HMGET', meta, 'schema', 'delivered', 'shards')
local mine, shards = known[3] or '1', string.match(ARGV[11], '[^?]+')
local epoch, newest = string.match(shards, '^(%d+):') or 0, string.match(mine, '^(%d+):') or 0
if tonumber(newest) > tonumber(epoch) then return { 'moved', mine } end
local head_due = tonumber(redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2] or math.huge)
local present, top = redis.call('XLEN', stream) > 0 or redis.call('EXISTS', stream) == 1, known[2]

local function pad(id) return (string.gsub(id, '%d+', function(d) return string.rep('0', 20 - #d) .. d end)) end
local function delivered(entry)
  for _, group in ipairs(present and redis.call('XINFO', 'GROUPS', stream) or {}) do
    local is = {}
    for i = 1, #group, 2 do is[group[i]] = group[i + 1] end
    local last = is.name == 'delayq' and pad(is['last-delivered-id'])
    if last then return pad(entry) <= last or (top and last < pad(top)) end
  end
  return true
end

local owner = redis.call('HGET', unique, digest)
local entry, waits = owner and redis.call('HGET', entries, owner), owner and redis.call('ZSCORE', scheduled, owner)
waits = entry and not delivered(entry) or not entry and waits
local latest = most > 0 and now + most or math.huge
if waits and most > 0 then
  local of, till = string.match(redis.call('HGET', unique, digest .. '.most') or '', '^(%S+) (%d+)$')
  latest = of == owner and tonumber(till) or now
end
local due = math.max(now, math.min(now + wait, latest))
local reply = { known[1] and '0' or '1', waits and 'debounced' or 'created', string.format('%.0f', due), waits and owner or '' }
if mine ~= shards then redis.call('HSET', meta, 'shards', shards) end
if redis.call('HEXISTS', jobs, id) == 1 or redis.call('HEXISTS', entries, id) == 1 then
  reply[2], reply[3], reply[4] = 'kept', '', ''
elseif shards ~= ARGV[11] and not waits then
  return { reply[1], 'unknown', '', '' }
else
  redis.call('HSET', jobs, id, envelope)
  redis.call('ZADD', scheduled, reply[3], id)
  redis.call('HSET', unique, digest, id)
  redis.call('HSET', locks, id, digest)
  if most > 0 then redis.call('HSET', unique, digest .. '.most', id .. string.format(' %.0f', latest)) end
  if owner and redis.call('HGET', locks, owner) == digest then redis.call('HDEL', locks, owner) end
  if waits then
    redis.call('ZREM', scheduled, owner)
    if entry then redis.call('XDEL', stream, entry) end
    for _, key in ipairs({ jobs, entries, errors, recoveries, cancel }) do redis.call('HDEL', key, owner) end
  end
  if due < head_due then redis.call('PUBLISH', ARGV[3], ARGV[2] .. ' ' .. reply[3]) end
  redis.pcall('HINCRBY', meta, waits and 'debounced_total' or 'scheduled_total', 1)
  if not known[1] then redis.call('HSET', meta, 'schema', '1', 'lease_ms', ARGV[4], 'shards', shards) end
end
if once_ms > 0 then redis.call('SET', once, cjson.encode(reply), 'PX', once_ms) end
return reply
