-- report: how a call went, for the circuit it belongs to.
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
--
-- Why the last who failed is kept: the same call sent twice counts once.
-- Why the first write takes away nothing: at its memory limit a server lets a script go on that starts with HDEL.
-- Why a success closes only what it tried: a call that began before the circuit opened says nothing of what came later.

local breakers, breakers_until, counters = KEYS[1], KEYS[2], KEYS[3]
local now, key, holder, verdict = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local most, length = tonumber(ARGV[5]), tonumber(ARGV[6])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if not (most and length) then return redis.error_reply('ERR most and decay_ms are numbers') end
redis.call('HLEN', counters)
redis.call('ZCARD', breakers_until)
local state = redis.call('HGET', breakers, key) or '0\n0\n0\n0\n\n'
local lines = '^(%d+)\n(%d+)\n(%d+)\n(%d+)\n([^\n]*)\n([^\n]*)$'
local failures, since, till, decay, last, probe = string.match(state, lines)
failures, since, till = tonumber(failures), tonumber(since), tonumber(till)

redis.call('HDEL', counters, '')
local tried = probe == holder
if verdict == 'passed' and (tried or till == 0) then
  redis.call('HDEL', breakers, key)
  redis.call('ZREM', breakers_until, key)
  return { 0, 0 }
end
if verdict == 'failed' and last ~= holder then
  if till == 0 and (since > now or since + length <= now) then failures, since = 0, now end
  failures, last = failures + 1, holder
  if tried or (till == 0 and failures >= most) then
    till, since = tried and now + length or since + length, now
    redis.pcall('HINCRBY', counters, 'opened_total', 1)
  end
end
if tried then probe = '' end
if failures > 0 then
  local kept = { failures, since, till, length, last, probe }
  for n = 1, 4 do kept[n] = string.format('%.0f', kept[n]) end
  redis.call('HSET', breakers, key, table.concat(kept, '\n'))
  local ends = till > 0 and till + length or since + length
  redis.call('ZADD', breakers_until, string.format('%.0f', ends), key)
end
return { till > now and 1 or 0, failures }
