-- acquire: take one of the places of a limit, if one is free, before the handler runs.
--
-- moves    nothing
-- KEYS[1]  holders    zset   'queue id entry' -> since when it holds a place of this key
-- KEYS[2]  waiting    zset   'queue id' -> since when it waits for one
-- KEYS[3]  places     zset   key -> how many places it has
-- KEYS[4]  counters   hash
-- ARGV[1]  now_ms     int    '' = the server's clock
-- ARGV[2]  key        text   the key of the limit
-- ARGV[3]  limit      int    how many places the key has
-- ARGV[4]  holder     text   queue, id and entry id, blanks between
-- ARGV[5]  waiter     text   queue and id
-- ARGV[6]  expire_ms  int    a place held for that long is lost; 0 = never
-- ARGV[7+] stale      1 each holders whose entry is not their job's any more
-- returns  {1, waiters to wake, because more places became free …}, or {0, how many wait, holders …}, 100 holders at
--          most
-- cost     O(log n), and the holders named
--
-- An entry id never comes back. So when `entries[id]` of a holder's queue is another one, or none, the holder is gone
-- for ever. The caller asks for it in the slot of that queue, and names stale holders in a second call. A crash
-- therefore holds a place for one lease, and no row has to be renewed.

local holders, waiting, places, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now = tonumber(ARGV[1])
local key = ARGV[2]
local limit = tonumber(ARGV[3])
local holder = ARGV[4]
local waiter = ARGV[5]
local expire = tonumber(ARGV[6])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
if not (limit and limit >= 1 and expire) then
  return redis.error_reply('ERR a limit is a number from 1 on, expire_ms one from 0 on')
end
redis.call('ZCARD', waiting)
redis.call('ZCARD', places)
redis.call('HLEN', counters)

-- A server at its memory limit lets a script go on that starts with ZREM. So jobs that hold memory can still run.
local freed = redis.call('ZREM', holders, '', unpack(ARGV, 7, #ARGV))
if expire > 0 then
  freed = freed + redis.call('ZREMRANGEBYSCORE', holders, '-inf', string.format('%.0f', now - expire))
end

local mine = redis.call('ZSCORE', holders, holder)
local held = redis.call('ZCARD', holders)
if not mine and held >= limit then
  redis.pcall('HINCRBY', counters, 'blocked_total', 1)
  local reply = { 0, redis.call('ZCARD', waiting) }
  -- Another hundred holders each time: among more than these, a stale one would never be found.
  local from = 100 * (math.floor(now) % math.ceil(held / 100))
  for n, other in ipairs(redis.call('ZRANGE', holders, from, from + 99)) do
    reply[n + 2] = other
  end
  return reply
end

redis.call('ZREM', waiting, waiter)
if not mine then
  held = held + 1
  freed = freed - 1
  redis.call('ZADD', holders, string.format('%.0f', now), holder)
  redis.call('ZADD', places, ARGV[3], key)
  redis.pcall('HINCRBY', counters, 'taken_total', 1)
end
local reply = { 1 }
local more = math.min(freed, limit - held)
local woken = more > 0 and redis.call('ZPOPMIN', waiting, more) or {}
for n = 1, #woken, 2 do
  reply[#reply + 1] = woken[n]
end
return reply
