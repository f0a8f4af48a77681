-- reserve: let in what is due and what nobody came back for, and reserve the first jobs of one of Laravel's queues.
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
--
-- Why the payload is not decoded: Laravel's own script does, and so writes [] as {} and large numbers as others; one
-- that is nested too deeply is lost. Here the digits of the count are replaced, and no other byte.
-- Why what has no count is reserved all the same: it stays where nobody loses it until its reader has said why it is
-- no job. Its row says 0 0.
-- Why some rows of `held` are looked at: what a worker of Laravel's let in leaves its row behind.
-- Why tokens go when the list is empty: who takes one without a job, or dies between, leaves too few or too many.

local list, delayed, reserved, notify, held = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local lease, count, seed, heard = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
for _, key in ipairs({ delayed, reserved }) do redis.call('ZCARD', key) end
for _, key in ipairs({ list, notify }) do redis.call('LLEN', key) end
local function payload(row) return row and row:sub(select(2, row:find('^%d+ %d+ ')) + 1) end
local reply, at = { string.format('%.0f', now), '' }, string.format('%.3f', now / 1000)
local bytes, expiry = 0, string.format('%.3f', (now + lease) / 1000)
for n = 1, count do
  local job = payload(redis.call('HGET', held, seed .. '.' .. n))
  if job and redis.call('ZSCORE', reserved, job) then
    redis.call('ZADD', reserved, 'XX', expiry, job)
    reply[#reply + 1], reply[#reply + 2] = seed .. '.' .. n, job
  end
end
if #reply > 2 then return reply end

for _, from in ipairs({ delayed, reserved }) do
  local moved, size = 0, 0
  repeat
    local some = redis.call('ZRANGEBYSCORE', from, '-inf', at, 'LIMIT', 0, 50)
    if #some > 0 then
      redis.call('ZREM', from, unpack(some))
      redis.call('RPUSH', list, unpack(some))
      for n, job in ipairs(some) do some[n], size = '1', size + #job end
      redis.call('RPUSH', notify, unpack(some))
    end
    moved = moved + #some
  until #some == 0 or moved >= 500 or size > 1000000
end

local function counted(job)
  local first = job:find(',"attempts":%d+%s*}%s*$', math.max(1, #job - 60))
  if first then return job:find('%d+', first) end
  local depth, i, from, to = 0, 0, nil, nil
  while true do
    i = job:find('["{}%[%]]', i + 1)
    if not i then return from, to and to - 1 end
    local mark, open = job:byte(i), i
    if mark == 34 then
      i = job:find('["\\]', i + 1)
      while i and job:byte(i) == 92 do i = job:find('["\\]', i + 2) end
      if not i then return end
      if depth == 1 and job:sub(open, i) == '"attempts"' then from, to = job:match('^%s*:%s*()%d+()%s*[,}]', i + 1) end
    else
      depth = depth + ((mark == 123 or mark == 91) and 1 or -1)
    end
  end
end

for n = 1, count do
  local job = bytes <= 1000000 and redis.call('LPOP', list)
  if not job then break end
  local first, last = counted(job)
  if first then
    local attempt = string.format('%.0f', tonumber(job:sub(first, last)) + 1)
    job, last = job:sub(1, first - 1) .. attempt .. job:sub(last + 1), first + #attempt - 1
  end
  local token = seed .. '.' .. n
  redis.call('ZADD', reserved, expiry, job)
  redis.call('HSET', held, token, ('%d %d '):format(first or 0, last or 0) .. job)
  if n > heard then redis.call('LPOP', notify) end
  reply[#reply + 1], reply[#reply + 2] = token, job
  bytes = bytes + #job
end
if redis.call('LLEN', list) == 0 then redis.call('UNLINK', notify) end
for _, token in ipairs(redis.call('HRANDFIELD', held, 2)) do
  local fresh = token:sub(1, #seed) == seed
  if not fresh and not redis.call('ZSCORE', reserved, payload(redis.call('HGET', held, token))) then
    redis.call('HDEL', held, token)
  end
end
local soon = nil
for _, key in ipairs({ delayed, reserved }) do
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  if first and (not soon or tonumber(first) < soon) then soon = tonumber(first) end
end
if soon then reply[2] = string.format('%.0f', math.ceil(soon * 1000)) end
return reply
