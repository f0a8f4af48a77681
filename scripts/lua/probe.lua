-- probe: ask whether a handler may be called, or its circuit is open after too many failures. One job at a time may try
-- whether it works again.
--
-- moves    nothing
-- KEYS[1]  breakers        hash   key -> failures, since, until, decay_ms, last, probe; a line each
-- KEYS[2]  breakers_until  zset   key -> when it is as good as forgotten
-- KEYS[3]  counters        hash
-- ARGV[1]  now_ms          int    '' = the server's clock
-- ARGV[2]  key             text   whose failures are counted together
-- ARGV[3]  holder          text   queue, id and entry id, blanks between
-- ARGV[4+] stale           1 each holders whose entry is not their job's any more
-- returns  {'closed', failures so far}, {'open', ms until a job may try}, {'probe', failures}: this job tries; or
--          {'probing', the holder that tries}
-- cost     O(log n)
--
-- The job that tries is known by its entry id. When its worker vanishes, the job gets another one; the next caller
-- looks that up and names the old one as stale.

local breakers, breakers_until, counters = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
local key = ARGV[2]
local holder = ARGV[3]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
redis.call('HLEN', counters)
local is_stale = {}
for i = 4, #ARGV do
  is_stale[ARGV[i]] = true
end

local state = redis.call('HGET', breakers, key) or '0\n0\n0\n0\n\n'
local lines = '^(%d+)\n(%d+)\n(%d+)\n(%d+)\n([^\n]*)\n([^\n]*)$'
local failures, since, open_until, decay, last, probe = string.match(state, lines)
local opens = math.min(tonumber(open_until), now + decay)

-- Forget a few circuits that are over. HDEL of nothing comes first: a server at its memory limit allows it, and then
-- runs the rest of the script.
local old = redis.call('ZRANGE', breakers_until, '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, 5)
redis.call('HDEL', counters, '')
if #old > 0 then
  redis.call('ZREM', breakers_until, unpack(old))
  redis.call('HDEL', breakers, unpack(old))
end
for _, gone in ipairs(old) do
  if gone == key then
    failures = '0'
    open_until = '0'
  end
end

if open_until == '0' then
  return { 'closed', tonumber(failures) }
end
if opens > now then
  redis.pcall('HINCRBY', counters, 'blocked_total', 1)
  return { 'open', opens - now }
end
if probe ~= '' and probe ~= holder and not is_stale[probe] then
  redis.pcall('HINCRBY', counters, 'blocked_total', 1)
  return { 'probing', probe }
end
redis.call('HSET', breakers, key, table.concat({ failures, since, open_until, decay, last, holder }, '\n'))
return { 'probe', tonumber(failures) }
