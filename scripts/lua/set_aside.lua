-- set_aside: take waiting jobs out of their queue for a migration, which sends them elsewhere and then drops them.
--
-- moves    scheduled -> absent, ready -> absent
-- KEYS[1]  scheduled   zset    id -> due_ms
-- KEYS[2]  jobs        hash    id -> envelope
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  recoveries  hash    id -> times its worker vanished
-- KEYS[6]  errors      hash    id -> failure
-- KEYS[7]  unique      hash    digest -> owning id
-- KEYS[8]  locks       hash    id -> digest
-- KEYS[9]  cancel      hash    id -> asked at
-- KEYS[10] meta        hash
-- KEYS[11] aside       hash    `lot id` -> `due_ms envelope`
-- ARGV[1]  now_ms      int     '' = the server's clock; the due time of what is ready
-- ARGV[2]  lot         text    its name
-- ARGV[3+] id          1 each
-- returns  {0|1, …}: 1 for each that was set aside, 0 for each that does not wait here (any more); shorter when the
--          bytes are enough: call again with the rest
-- cost     O(ids * log n); 1 MB of payload, but one job at least

local scheduled = KEYS[1]
local jobs = KEYS[2]
local stream = KEYS[3]
local entries = KEYS[4]
local recoveries = KEYS[5]
local errors = KEYS[6]
local unique = KEYS[7]
local locks = KEYS[8]
local cancel = KEYS[9]
local meta = KEYS[10]
local aside = KEYS[11]

local now = tonumber(ARGV[1])
local lot = ARGV[2]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Read every key, so that one of the wrong type raises its error before the first write.
for _, key in ipairs({ jobs, entries, recoveries, errors, unique, locks, cancel, aside }) do
  redis.call('HLEN', key)
end
redis.call('ZCARD', scheduled)

-- Pads both numbers of an entry id with zeros, so that ids compare as text.
local function pad(entry_id)
  return (string.gsub(entry_id, '%d+', function(digits)
    return string.rep('0', 20 - #digits) .. digits
  end))
end

-- The entries above `last` are ready. Without the group, or with one that was set back, none is.
local last = nil
for _, group in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  local info = {}
  for i = 1, #group, 2 do
    info[group[i]] = group[i + 1]
  end
  if info.name == 'delayq' then
    last = pad(info['last-delivered-id'])
  end
end
local top = redis.call('HGET', meta, 'delivered')
if last and top and last < pad(top) then
  last = nil
end

local answers = {}
local bytes = 0
for n = 3, #ARGV do
  local id = ARGV[n]
  local due = redis.call('ZSCORE', scheduled, id)
  local entry = redis.call('HGET', entries, id)
  local waits = due or (entry and last and pad(entry) > last)
  local job = waits and redis.call('HGET', jobs, id) or ''
  if job == '' then
    answers[#answers + 1] = 0
  else
    bytes = bytes + #job
    if bytes > 1000000 and #answers > 0 then
      break
    end
    -- What frees memory comes first, so a full server can be emptied in this way.
    redis.call('ZREM', scheduled, id)
    if entry and not due then
      redis.call('XDEL', stream, entry)
      redis.call('HDEL', entries, id)
    end
    for _, key in ipairs({ jobs, recoveries, errors, cancel }) do
      redis.call('HDEL', key, id)
    end
    local due_text = string.format('%.0f', math.max(0, math.min(due or now, 253402300799999)))
    redis.call('HSET', aside, lot .. ' ' .. id, due_text .. ' ' .. job)
    -- The unique key goes with the job, which takes it again where it arrives.
    local digest = redis.call('HGET', locks, id)
    if digest and redis.call('HGET', unique, digest) == id then
      redis.call('HDEL', unique, digest)
    end
    redis.call('HDEL', locks, id)
    answers[#answers + 1] = 1
  end
end
return answers
