-- acquire: take one of the places of a limit before the handler runs, if one is free.
--
-- moves    nothing
-- KEYS[1]  holders    zset   'queue id entry' -> since when it holds a place of this key
-- KEYS[2]  waiting    zset   'queue id' -> since when it waits for one
-- KEYS[3]  places     zset   key -> how many places it has
-- KEYS[4]  counters   hash
-- ARGV[1]  now_ms     int    '' = the server's clock
-- ARGV[2]  key        text   whose places these are
-- ARGV[3]  limit      int    how many there are
-- ARGV[4]  holder     text   queue, id and entry id, blanks between
-- ARGV[5]  waiter     text   queue and id
-- ARGV[6]  expire_ms  int    who has a place for that long has lost it; 0 = never
-- ARGV[7+] stale      1 each holders whose entry is not their job's any more
-- returns  {1, waiters to be woken for further places that became free …}, or {0, how many wait, holders …}, of these
--          100 at most
-- cost     O(log n), and the holders named
--
-- Why an entry id holds a place and nothing else has to keep it: an entry id never comes back, so when `entries[id]`
-- of its queue is another one, or none, the holder is gone for ever. The caller looks, in that queue's own slot, and
-- names the stale ones in a second call. So a crash holds a place as long as the lease, and no longer.
-- Why ZREM comes first: at its memory limit a server lets a script go on that starts with it. Jobs that hold memory
-- must still be able to run.
-- Why not always the same 100 holders are named: among more than these a stale one would never be found.

local holders, waiting, places, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, key, limit, holder, waiter = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local expire = tonumber(ARGV[6])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if not (limit and limit >= 1 and expire) then
  return redis.error_reply('ERR a limit is a number from 1 on, expire_ms one from 0 on')
end
for _, key_of in ipairs({ waiting, places }) do redis.call('ZCARD', key_of) end
redis.call('HLEN', counters)

local freed = redis.call('ZREM', holders, '', unpack(ARGV, 7, #ARGV))
if expire > 0 then
  freed = freed + redis.call('ZREMRANGEBYSCORE', holders, '-inf', string.format('%.0f', now - expire))
end
local mine, held = redis.call('ZSCORE', holders, holder), redis.call('ZCARD', holders)
if not mine and held >= limit then
  redis.pcall('HINCRBY', counters, 'blocked_total', 1)
  local reply, from = { 0, redis.call('ZCARD', waiting) }, 100 * (math.floor(now) % math.ceil(held / 100))
  for n, other in ipairs(redis.call('ZRANGE', holders, from, from + 99)) do reply[n + 2] = other end
  return reply
end
redis.call('ZREM', waiting, waiter)
if not mine then
  held, freed = held + 1, freed - 1
  redis.call('ZADD', holders, string.format('%.0f', now), holder)
  redis.call('ZADD', places, ARGV[3], key)
  redis.pcall('HINCRBY', counters, 'taken_total', 1)
end
local reply, more = { 1 }, math.min(freed, limit - held)
local woken = more > 0 and redis.call('ZPOPMIN', waiting, more) or {}
for n = 1, #woken, 2 do reply[#reply + 1] = woken[n] end
return reply
