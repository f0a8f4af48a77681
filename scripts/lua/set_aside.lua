-- set_aside: jobs that wait leave their queue for a migration, which sends them elsewhere and then drops them.
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
-- returns  {0|1, …}: 1 for each that was set aside, 0 for what does not wait here (any more); shorter when the bytes
--          are enough: call again with the rest
-- cost     O(ids * log n); 1 MB of payload, but one job at least
--
-- Why its unique key is freed: it goes with the job, which takes it again where it arrives.
-- Why it begins with what makes room: a full server can be emptied in this way.

local scheduled, jobs, stream, entries, recoveries = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local errors, unique, locks, cancel, meta, aside = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local now, lot = tonumber(ARGV[1]), ARGV[2]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
for _, key in ipairs({ jobs, entries, recoveries, errors, unique, locks, cancel, aside }) do redis.call('HLEN', key) end
redis.call('ZCARD', scheduled)

local function pad(id)
  return (string.gsub(id, '%d+', function(digits) return string.rep('0', 20 - #digits) .. digits end))
end
local last
for _, group in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  local is = {}
  for i = 1, #group, 2 do is[group[i]] = group[i + 1] end
  if is.name == 'delayq' then last = pad(is['last-delivered-id']) end
end
local top = redis.call('HGET', meta, 'delivered')
if last and top and last < pad(top) then last = nil end

local answers, bytes = {}, 0
for n = 3, #ARGV do
  local id = ARGV[n]
  local due, entry = redis.call('ZSCORE', scheduled, id), redis.call('HGET', entries, id)
  local waits = due or (entry and last and pad(entry) > last)
  local job = waits and redis.call('HGET', jobs, id) or ''
  if job == '' then
    answers[#answers + 1] = 0
  else
    bytes = bytes + #job
    if bytes > 1000000 and #answers > 0 then break end
    redis.call('ZREM', scheduled, id)
    if entry and not due then
      redis.call('XDEL', stream, entry)
      redis.call('HDEL', entries, id)
    end
    for _, key in ipairs({ jobs, recoveries, errors, cancel }) do redis.call('HDEL', key, id) end
    redis.call('HSET', aside, lot .. ' ' .. id, string.format('%.0f ', math.max(0, math.min(due or now, 253402300799999))) .. job)
    local digest = redis.call('HGET', locks, id)
    if digest and redis.call('HGET', unique, digest) == id then redis.call('HDEL', unique, digest) end
    redis.call('HDEL', locks, id)
    answers[#answers + 1] = 1
  end
end
return answers
