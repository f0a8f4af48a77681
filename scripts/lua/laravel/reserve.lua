-- reserve: let in what is due and what was not renewed, and reserve the first jobs of one of Laravel's queues.
--
-- moves    scheduled -> ready, reserved -> ready, ready -> reserved
-- KEYS[1]  list        list    payloads, the oldest first
-- KEYS[2]  delayed     zset    payload -> due, epoch seconds
-- KEYS[3]  reserved    zset    payload, its attempt counted -> when it is let in again, epoch seconds
-- KEYS[4]  notify      list    one token for each payload in the list
-- KEYS[5]  held        hash    token -> first and last digit of the count in the reserved payload, and that payload
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  lease_ms    int     Laravel's retry_after
-- ARGV[3]  count       int     of jobs to reserve
-- ARGV[4]  seed        text    tokens are seed.1, seed.2, …; the same seed again answers what is left of the first call
-- ARGV[5]  heard       int     tokens of `notify` that the caller has taken already
-- returns  now, ms; when the next job that waits may come, ms, or ''; then token and payload of each job reserved
-- cost     O(log n) each; lets in 500 and 1 MB of either kind, reserves 1 MB, but one at least

local list, delayed, reserved, notify, held = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local lease = tonumber(ARGV[2])
local count = tonumber(ARGV[3])
local seed = ARGV[4]
local heard = tonumber(ARGV[5])
redis.call('ZCARD', delayed)
redis.call('ZCARD', reserved)
redis.call('LLEN', list)
redis.call('LLEN', notify)

-- The payload of a row of `held`.
local function read_payload(row)
  if not row then
    return row
  end
  local _, prefix_end = row:find('^%d+ %d+ ')
  return row:sub(prefix_end + 1)
end

-- A call that is sent again gets what is left of the first one, with a new lease.
local reply = { string.format('%.0f', now), '' }
local at = string.format('%.3f', now / 1000)
local expiry = string.format('%.3f', (now + lease) / 1000)
for n = 1, count do
  local token = seed .. '.' .. n
  local job = read_payload(redis.call('HGET', held, token))
  if job and redis.call('ZSCORE', reserved, job) then
    redis.call('ZADD', reserved, 'XX', expiry, job)
    reply[#reply + 1] = token
    reply[#reply + 1] = job
  end
end
if #reply > 2 then
  return reply
end

-- Let in what is due, and what was not renewed.
for _, from in ipairs({ delayed, reserved }) do
  local moved = 0
  local size = 0
  repeat
    local some = redis.call('ZRANGEBYSCORE', from, '-inf', at, 'LIMIT', 0, 50)
    if #some > 0 then
      redis.call('ZREM', from, unpack(some))
      redis.call('RPUSH', list, unpack(some))
      for n, job in ipairs(some) do
        some[n] = '1'
        size = size + #job
      end
      redis.call('RPUSH', notify, unpack(some))
    end
    moved = moved + #some
  until #some == 0 or moved >= 500 or size > 1000000
end

-- The place of the digits of `attempts` in a payload, or nil. The payload is not decoded. Laravel's own script decodes
-- it, and so writes [] as {} and large numbers as others, and loses a payload that is nested too deeply. Here the
-- digits of the count are replaced, and no other byte.
local function find_attempts(job)
  -- Laravel and delayq write `attempts` last, so nearly always this is enough.
  local tail = job:find(',"attempts":%d+%s*}%s*$', math.max(1, #job - 60))
  if tail then
    return job:find('%d+', tail)
  end
  -- Walk over strings, braces and brackets; the member of the outermost object that comes last counts.
  local depth = 0
  local i = 0
  local from = nil
  local to = nil
  while true do
    i = job:find('["{}%[%]]', i + 1)
    if not i then
      return from, to and to - 1
    end
    local mark = job:byte(i)
    local open = i
    if mark == 34 then -- a string: go to its closing quote
      i = job:find('["\\]', i + 1)
      while i and job:byte(i) == 92 do -- a backslash: skip what it escapes
        i = job:find('["\\]', i + 2)
      end
      if not i then
        return
      end
      if depth == 1 and job:sub(open, i) == '"attempts"' then
        from, to = job:match('^%s*:%s*()%d+()%s*[,}]', i + 1)
      end
    elseif mark == 123 or mark == 91 then -- { or [
      depth = depth + 1
    else
      depth = depth - 1
    end
  end
end

local bytes = 0
for n = 1, count do
  local job = bytes <= 1000000 and redis.call('LPOP', list)
  if not job then
    break
  end
  -- A payload without a count is reserved all the same: it stays there, and is not lost, until its reader has said why
  -- it is no job. Its row says 0 0.
  local first, last = find_attempts(job)
  if first then
    local attempt = string.format('%.0f', tonumber(job:sub(first, last)) + 1)
    job = job:sub(1, first - 1) .. attempt .. job:sub(last + 1)
    last = first + #attempt - 1
  end
  local token = seed .. '.' .. n
  redis.call('ZADD', reserved, expiry, job)
  redis.call('HSET', held, token, ('%d %d '):format(first or 0, last or 0) .. job)
  if n > heard then
    redis.call('LPOP', notify)
  end
  reply[#reply + 1] = token
  reply[#reply + 1] = job
  bytes = bytes + #job
end

-- A worker that takes a token without a job, or dies between the two, leaves too few tokens or too many. They go when
-- the list is empty.
if redis.call('LLEN', list) == 0 then
  redis.call('UNLINK', notify)
end
-- What a worker of Laravel's let in leaves its row behind. So each call looks at two rows.
for _, token in ipairs(redis.call('HRANDFIELD', held, 2)) do
  local is_fresh = token:sub(1, #seed) == seed
  if not is_fresh and not redis.call('ZSCORE', reserved, read_payload(redis.call('HGET', held, token))) then
    redis.call('HDEL', held, token)
  end
end

local soonest = nil
for _, key in ipairs({ delayed, reserved }) do
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  if first and (not soonest or tonumber(first) < soonest) then
    soonest = tonumber(first)
  end
end
if soonest then
  reply[2] = string.format('%.0f', math.ceil(soonest * 1000))
end
return reply
