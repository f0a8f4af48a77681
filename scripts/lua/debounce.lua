-- debounce: schedule a job in place of the waiting one with the same key, and start the wait anew.
--
-- moves    absent -> scheduled; the job it takes the place of: scheduled -> absent, ready -> absent
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
-- ARGV[3]  wake        text    channel of the wake-up
-- ARGV[4]  lease_ms    int     the lease of a queue seen for the first time
-- ARGV[5]  once_ms     int     how long to keep the answer for a resend; 0 = do not keep it
-- ARGV[6]  id          text
-- ARGV[7]  envelope    json
-- ARGV[8]  wait_ms     int     the job is due when no other came for so long
-- ARGV[9]  most_ms     int     or so long after the first; 0 = however long
-- ARGV[10] digest      text    of the key
-- ARGV[11] shards      text    the layout of shards the caller knows; '?' in front of it = create nothing, only look
--                              for a job that an older layout put here
-- returns  {'1' when meta was new, answer, due_ms, id of the job whose place it took or ''}; answer: created,
--          debounced, kept (the id is taken), or unknown (none waits here, and the call only looked); {'moved', layout}
--          when this shard knows a newer layout
-- cost     O(log n)
--
-- A job that was delivered is left alone: it may run already. This one begins a new wait and owns the key from now on,
-- so no call is lost. The latest due time is a window of the key (`digest.most`): time alone frees it, so no other
-- script has to know it, and sweep drops it.

local jobs = KEYS[1]
local scheduled = KEYS[2]
local stream = KEYS[3]
local entries = KEYS[4]
local meta = KEYS[5]
local unique = KEYS[6]
local locks = KEYS[7]
local errors = KEYS[8]
local recoveries = KEYS[9]
local cancel = KEYS[10]
local once = KEYS[11]

local now = tonumber(ARGV[1])
local once_ms = tonumber(ARGV[5])
local id = ARGV[6]
local envelope = ARGV[7]
local wait = tonumber(ARGV[8])
local most = tonumber(ARGV[9])
local digest = ARGV[10]
local first = once_ms > 0 and redis.call('GET', once)
if first then
  return cjson.decode(first)
end
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if not (wait and most and now + wait + most <= 9007199254740991) then
  return redis.error_reply('ERR a wait is: wait_ms, most_ms, both up to 2^53 - 1')
end

-- Read every key, so that one of the wrong type raises its error before the first write.
for _, key in ipairs({ jobs, entries, unique, locks, errors, recoveries, cancel }) do
  redis.call('HLEN', key)
end
local known = redis.call('HMGET', meta, 'schema', 'delivered', 'shards')
local top = known[2]
local layout_here = known[3] or '1'
local layout = string.match(ARGV[11], '[^?]+')
local only_look = layout ~= ARGV[11]
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

-- The job that has the key, and whether it still waits.
local owner = redis.call('HGET', unique, digest)
local entry = owner and redis.call('HGET', entries, owner)
local score = owner and redis.call('ZSCORE', scheduled, owner)
local waits = score
if entry then
  waits = not is_delivered(entry)
end

local latest = math.huge
if most > 0 then
  latest = now + most
  if waits then -- a window that sweep has dropped is over, so the job is due at once
    local holder, until_ms = string.match(redis.call('HGET', unique, digest .. '.most') or '', '^(%S+) (%d+)$')
    latest = holder == owner and tonumber(until_ms) or now
  end
end
local due = math.max(now, math.min(now + wait, latest))
local due_text = string.format('%.0f', due)
local is_new = known[1] and '0' or '1'
local reply = { is_new, waits and 'debounced' or 'created', due_text, waits and owner or '' }

-- The caller knows a newer layout. Recording it stops clients with the older one from creating this job here later.
if layout_here ~= layout then
  redis.call('HSET', meta, 'shards', layout)
end
if redis.call('HEXISTS', jobs, id) == 1 or redis.call('HEXISTS', entries, id) == 1 then
  reply = { is_new, 'kept', '', '' }
elseif only_look and not waits then
  return { is_new, 'unknown', '', '' }
else
  -- HSET comes first: it grows, so a server at its memory limit refuses the whole call. A job that waits where an older
  -- layout put it is replaced there: in one step, or one of both could be lost.
  redis.call('HSET', jobs, id, envelope)
  redis.call('ZADD', scheduled, due_text, id)
  redis.call('HSET', unique, digest, id)
  redis.call('HSET', locks, id, digest)
  if most > 0 then
    redis.call('HSET', unique, digest .. '.most', id .. string.format(' %.0f', latest))
  end
  if owner and redis.call('HGET', locks, owner) == digest then
    redis.call('HDEL', locks, owner)
  end
  if waits then
    redis.call('ZREM', scheduled, owner)
    if entry then
      redis.call('XDEL', stream, entry)
    end
    for _, key in ipairs({ jobs, entries, errors, recoveries, cancel }) do
      redis.call('HDEL', key, owner)
    end
  end
  if due < head_due then
    redis.call('PUBLISH', ARGV[3], ARGV[2] .. ' ' .. due_text)
  end
  redis.pcall('HINCRBY', meta, waits and 'debounced_total' or 'scheduled_total', 1)
  if not known[1] then
    redis.call('HSET', meta, 'schema', '1', 'lease_ms', ARGV[4], 'shards', layout)
  end
end
if once_ms > 0 then
  redis.call('SET', once, cjson.encode(reply), 'PX', once_ms)
end
return reply
