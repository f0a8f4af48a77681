-- bury: dead-letter stream entries that are no jobs of ours, so that garbage neither blocks a worker nor vanishes.
--
-- moves    (no job) -> failed, under the id `x-<entry id>`; a stray copy of a job that is known: dropped
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  failed      zset    id -> failed at
-- KEYS[4]  jobs        hash    id -> envelope; here: the raw bytes
-- KEYS[5]  errors      hash    id -> failure
-- KEYS[6]  meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2+] garbage     2 each  entry id, failure (JSON)
-- returns  1 or 0 for each: buried or dropped, or left alone because it is gone or is a job's own entry after all
-- cost     O(entries) and their bytes, which lie in Redis already; at most 500 a call
--
-- Kept are the bytes of the field `job`, or all fields when it has none.

local entries, stream, failed, jobs, errors, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
for _, key in ipairs({ entries, jobs, errors, meta }) do redis.call('HLEN', key) end
redis.call('ZCARD', failed)

local reply, count = {}, 0
for i = 2, #ARGV, 2 do
  local entry, failure = ARGV[i], ARGV[i + 1]
  local found = redis.call('XRANGE', stream, entry, entry)[1]
  local is, all = {}, {}
  for n = 1, found and #found[2] or 0, 2 do
    is[found[2][n]] = found[2][n + 1]
    all[#all + 1] = found[2][n] .. '=' .. found[2][n + 1]
  end
  local ours = found and is.id and redis.call('HGET', entries, is.id) == entry
  reply[#reply + 1] = found and not ours and 1 or 0
  if found and not ours then
    local id = 'x-' .. entry
    redis.call('XACK', stream, 'delayq', entry)
    redis.call('XDEL', stream, entry)
    if not is.id or redis.call('HEXISTS', jobs, is.id) == 0 then
      redis.call('ZADD', failed, string.format('%.0f', now), id)
      redis.call('HSET', jobs, id, is.job or table.concat(all, '\n'))
      redis.call('HSET', errors, id, failure)
      count = count + 1
    end
  end
end
if count > 0 then redis.call('HINCRBY', meta, 'failed_total', count) end
return reply
