-- report: say how a call went, for the circuit it belongs to.
--
-- moves    nothing
-- KEYS[1]  breakers        hash   key -> failures, since, until, decay_ms, last, probe; a line each
-- KEYS[2]  breakers_until  zset   key -> when it is as good as forgotten
-- KEYS[3]  counters        hash
-- ARGV[1]  now_ms          int    '' = the server's clock
-- ARGV[2]  key             text   whose failures are counted together
-- ARGV[3]  holder          text   queue, id and entry id, blanks between
-- ARGV[4]  verdict         text   failed, passed, or neither (it ended without one)
-- ARGV[5]  most            int    so many failures open the circuit
-- ARGV[6]  decay_ms        int    if they come within that time; it stays open until this has passed
-- returns  {1 when the circuit is open now, failures}
-- cost     O(log n)

local breakers, breakers_until, counters = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
local key = ARGV[2]
local holder = ARGV[3]
local verdict = ARGV[4]
local most = tonumber(ARGV[5])
local decay = tonumber(ARGV[6])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if not (most and decay) then
  return redis.error_reply('ERR most and decay_ms are numbers')
end
redis.call('HLEN', counters)
redis.call('ZCARD', breakers_until)
local state = redis.call('HGET', breakers, key) or '0\n0\n0\n0\n\n'
local lines = '^(%d+)\n(%d+)\n(%d+)\n(%d+)\n([^\n]*)\n([^\n]*)$'
local failures, since, open_until, _, last, probe = string.match(state, lines)
failures = tonumber(failures)
since = tonumber(since)
open_until = tonumber(open_until)

-- HDEL of nothing frees memory for Redis: a server at its memory limit allows it, and then runs the rest of the script.
redis.call('HDEL', counters, '')

-- A success closes the circuit only when it was the try, or the circuit is closed: a call that began before the circuit
-- opened says nothing of what came later.
local is_probe = probe == holder
if verdict == 'passed' and (is_probe or open_until == 0) then
  redis.call('HDEL', breakers, key)
  redis.call('ZREM', breakers_until, key)
  return { 0, 0 }
end

-- `last` is the holder that failed last: the same call sent twice counts once.
if verdict == 'failed' and last ~= holder then
  if open_until == 0 and (since > now or since + decay <= now) then
    failures = 0
    since = now
  end
  failures = failures + 1
  last = holder
  if is_probe or (open_until == 0 and failures >= most) then
    open_until = is_probe and now + decay or since + decay
    since = now
    redis.pcall('HINCRBY', counters, 'opened_total', 1)
  end
end
if is_probe then
  probe = ''
end
if failures > 0 then
  local row = { failures, since, open_until, decay, last, probe }
  for n = 1, 4 do
    row[n] = string.format('%.0f', row[n])
  end
  redis.call('HSET', breakers, key, table.concat(row, '\n'))
  local ends = open_until > 0 and open_until + decay or since + decay
  redis.call('ZADD', breakers_until, string.format('%.0f', ends), key)
end
return { open_until > now and 1 or 0, failures }
