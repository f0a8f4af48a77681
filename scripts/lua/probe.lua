-- probe: may a handler be called, or is its circuit open after too many failures? One at a time tries whether it works
-- again.
--
-- moves    nothing
-- KEYS[1]  breakers        hash   key -> failures, since, until, decay_ms, last, probe; a line each
-- KEYS[2]  breakers_until  zset   key -> when it is as good as forgotten
-- KEYS[3]  counters        hash
-- ARGV[1]  now_ms          int    '' = the server's clock
-- ARGV[2]  key             text   whose failures are counted together
-- ARGV[3]  holder          text   queue, id and entry id, blanks between
-- ARGV[4+] stale           1 each holders whose entry is not their job's any more
-- returns  {'closed', failures so far}, {'open', ms until somebody may try}, {'probe', failures}: you try; or
--          {'probing', who tries}
-- cost     O(log n)
--
-- Why the one who tries is known by its entry id: when its worker vanishes, the job is given another one, and whoever
-- asks next looks that up and names it as stale.
-- Why the first write takes away nothing: at its memory limit a server lets a script go on that starts with HDEL.

local breakers, breakers_until, counters = KEYS[1], KEYS[2], KEYS[3]
local now, key, holder = tonumber(ARGV[1]), ARGV[2], ARGV[3]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
redis.call('HLEN', counters)
local stale = {}
for i = 4, #ARGV do stale[ARGV[i]] = true end
local state = redis.call('HGET', breakers, key) or '0\n0\n0\n0\n\n'
local lines = '^(%d+)\n(%d+)\n(%d+)\n(%d+)\n([^\n]*)\n([^\n]*)$'
local failures, since, till, decay, last, probe = string.match(state, lines)
local opens = math.min(tonumber(till), now + decay)

local old = redis.call('ZRANGE', breakers_until, '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, 5)
redis.call('HDEL', counters, '')
if #old > 0 then redis.call('ZREM', breakers_until, unpack(old)); redis.call('HDEL', breakers, unpack(old)) end
for _, gone in ipairs(old) do
  if gone == key then failures, till = '0', '0' end
end
if till == '0' then return { 'closed', tonumber(failures) } end
if opens > now then
  redis.pcall('HINCRBY', counters, 'blocked_total', 1)
  return { 'open', opens - now }
end
if probe ~= '' and probe ~= holder and not stale[probe] then
  redis.pcall('HINCRBY', counters, 'blocked_total', 1)
  return { 'probing', probe }
end
redis.call('HSET', breakers, key, table.concat({ failures, since, till, decay, last, holder }, '\n'))
return { 'probe', tonumber(failures) }
