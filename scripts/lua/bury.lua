-- bury: move stream entries that are not jobs of ours to the failed, so that they neither block a worker nor get lost.
--
-- moves    (no job) -> failed, under the id `x-<entry id>`; a stray copy of a job that has another place: dropped;
--          an entry whose row was lost: given back to its job, which has no other place, while a worker holds it or
--          it was not yet delivered
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  scheduled   zset    id -> due_ms
-- KEYS[4]  failed      zset    id -> failed at
-- KEYS[5]  completed   zset    id -> forget at
-- KEYS[6]  jobs        hash    id -> envelope; here also: the raw bytes
-- KEYS[7]  errors      hash    id -> failure
-- KEYS[8]  meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2+] garbage     2 each  entry id, failure (JSON)
-- returns  a word for each entry it looked at: buried, dropped, adopted (given back), or left (it is gone, or is a
--          job's own entry after all). A shorter list than asked means 1 MB was reached: call again with the rest
-- cost     O(entries) and their bytes, which lie in Redis already; at most 500 a call, 1 MB, but one at least

local entries = KEYS[1]
local stream = KEYS[2]
local scheduled = KEYS[3]
local failed = KEYS[4]
local completed = KEYS[5]
local jobs = KEYS[6]
local errors = KEYS[7]
local meta = KEYS[8]

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)

-- Read every key, so that one of the wrong type raises its error before the first write.
for _, key in ipairs({ entries, jobs, errors, meta }) do
  redis.call('HLEN', key)
end
for _, key in ipairs({ scheduled, failed, completed }) do
  redis.call('ZCARD', key)
end
redis.call('XLEN', stream)

-- HDEL of nothing frees memory for Redis: a server at its memory limit allows it, and then runs the rest of the script.
redis.call('HDEL', meta, '')

-- Pads both numbers of an entry id with zeros, so that ids compare as text.
local function pad(entry_id)
  return (string.gsub(entry_id, '%d+', function(digits)
    return string.rep('0', 20 - #digits) .. digits
  end))
end

local function find_place(id)
  if redis.call('HEXISTS', entries, id) == 1 then
    return entries
  end
  for _, set in ipairs({ scheduled, failed, completed }) do
    if redis.call('ZSCORE', set, id) then
      return set
    end
  end
end

-- Whether a worker holds the entry, or it was not yet delivered. One that was delivered and is no longer pending was
-- acknowledged by reclaim, because no job owned it; as a job's own it would look like work that was done. mend then
-- schedules that job anew.
local function is_held_or_new(entry)
  local rows = redis.pcall('XPENDING', stream, 'delayq', entry, entry, 1)
  local last = nil
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local info = {}
    for n = 1, #group, 2 do
      info[group[n]] = group[n + 1]
    end
    if info.name == 'delayq' then
      last = info['last-delivered-id']
    end
  end
  return #rows > 0 or (last and pad(entry) > pad(last))
end

local reply = {}
local bytes = 0
local gone = {}
local scores = {}
local payloads = {}
local failures = {}
for i = 2, #ARGV, 2 do
  local entry = ARGV[i]
  local found = redis.call('XRANGE', stream, entry, entry)[1]
  local fields = {}
  local lines = {}
  for n = 1, found and #found[2] or 0, 2 do
    local name = found[2][n]
    local value = found[2][n + 1]
    fields[name] = value
    lines[#lines + 1] = name .. '=' .. value
    bytes = bytes + #value
  end
  if bytes > 1000000 and #reply > 0 then
    break
  end
  local is_known = fields.id and redis.call('HEXISTS', jobs, fields.id) == 1
  local word = 'left'
  if is_known and not find_place(fields.id) and is_held_or_new(entry) then
    redis.call('HSET', entries, fields.id, entry)
    word = 'adopted'
  elseif found and not (fields.id and redis.call('HGET', entries, fields.id) == entry) then
    gone[#gone + 1] = entry
    word = is_known and 'dropped' or 'buried'
    if not is_known then
      local id = 'x-' .. entry
      scores[#scores + 1] = at
      scores[#scores + 1] = id
      -- The bytes of the field `job` are kept, or all fields when it has none.
      payloads[#payloads + 1] = id
      payloads[#payloads + 1] = fields.job or table.concat(lines, '\n')
      failures[#failures + 1] = id
      failures[#failures + 1] = ARGV[i + 1]
    end
  end
  reply[#reply + 1] = word
end
if #gone > 0 then
  redis.call('XACK', stream, 'delayq', unpack(gone))
  redis.call('XDEL', stream, unpack(gone))
end
if #scores > 0 then
  redis.call('ZADD', failed, unpack(scores))
  redis.call('HSET', jobs, unpack(payloads))
  redis.call('HSET', errors, unpack(failures))
  redis.pcall('HINCRBY', meta, 'failed_total', #scores / 2)
end
return reply
