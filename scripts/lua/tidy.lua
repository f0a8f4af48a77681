-- tidy: look after a queue's frame: its stream, its group and its meta, and take the two sums.
--
-- moves    nothing
-- KEYS[1]  stream      stream  group `delayq`
-- KEYS[2]  entries     hash    id -> entry id
-- KEYS[3]  scheduled   zset    id -> due_ms
-- KEYS[4]  failed      zset    id -> failed at
-- KEYS[5]  completed   zset    id -> forget at
-- KEYS[6]  jobs        hash    id -> envelope
-- KEYS[7]  meta        hash
-- ARGV[1]  lease_ms    int     the lease of a queue seen for the first time
-- returns  {lease_ms, XLEN stream, HLEN entries, ZCARD scheduled, ZCARD failed, ZCARD completed, HLEN jobs,
--          regrouped 0|1}
-- cost     O(consumers + groups)
--
-- A stream without its group, or a group whose last-delivered id lies below one seen before, was damaged: somebody
-- may hold any of its entries. The group is then set to the stream's end, so that nobody reads an old id a second
-- time, and `anew` remembers up to where entries must be appended anew; `unsettled` does that page by page.
-- Why HDEL of nothing comes first: it is a write that a server at its memory limit allows, and opens it for the rest.

local stream, entries, scheduled, failed, completed, jobs, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local lease = ARGV[1]
local function pad(id)
  local ms, seq = string.match(id, '^(%d+)%-(%d+)$')
  return string.rep('0', 20 - #ms) .. ms .. string.rep('0', 20 - #seq) .. seq
end
local known = redis.call('HMGET', meta, 'delivered', 'lease_ms')
local top, regrouped, last = known[1], 0, nil
local held, placed = redis.call('XLEN', stream), redis.call('HLEN', entries)
redis.call('HDEL', meta, '')
if redis.call('HSETNX', meta, 'schema', '1') == 1 or not known[2] then
  redis.call('HSETNX', meta, 'lease_ms', lease)
  redis.call('HSETNX', meta, 'shards', '1')
end
if held == 0 and redis.call('EXISTS', stream) == 0 then
  redis.call('XGROUP', 'CREATE', stream, 'delayq', '0', 'MKSTREAM')
  if top then redis.call('XSETID', stream, top) end
  if placed == 0 then redis.call('HDEL', meta, 'delivered') end
  if placed == 0 then top = false end
end
for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local is = {}
  for i = 1, #group, 2 do is[group[i]] = group[i + 1] end
  if is.name == 'delayq' then last = is['last-delivered-id'] end
end
if not last or (top and pad(last) < pad(top)) then
  redis.call('XGROUP', last and 'SETID' or 'CREATE', stream, 'delayq', '$')
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local is = {}
    for i = 1, #group, 2 do is[group[i]] = group[i + 1] end
    if is.name == 'delayq' then last = is['last-delivered-id'] end
  end
  redis.call('HSET', meta, 'anew', last)
  regrouped = 1
end
redis.call('HSET', meta, 'delivered', last)
return { tonumber(redis.call('HGET', meta, 'lease_ms')), held, placed, redis.call('ZCARD', scheduled),
  redis.call('ZCARD', failed), redis.call('ZCARD', completed), redis.call('HLEN', jobs), regrouped }
