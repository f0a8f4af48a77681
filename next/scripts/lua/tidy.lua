-- tidy: repair the stream, the group and the meta of a queue, and take the two sums.
--
-- MOVES  nothing
--
-- KEYS   stream      stream  group `delayq`
-- KEYS   entries     hash    id -> entry id, while the job is in the stream
-- KEYS   scheduled   zset    id -> due, epoch ms
-- KEYS   failed      zset    id -> failed at, epoch ms
-- KEYS   completed   zset    id -> forget at, epoch ms
-- KEYS   jobs        hash    id -> envelope
-- KEYS   unique      hash    digest -> id of its owner
-- KEYS   locks       hash    id -> digest
-- KEYS   meta        hash    schema, lease_ms, delivered, anew, counters
--
-- ARGV   lease_ms    int     lease of a queue that is seen for the first time
--
-- RETURNS  {lease_ms, XLEN stream, HLEN entries, ZCARD scheduled, ZCARD failed, ZCARD completed, HLEN jobs, HLEN
--          unique, HLEN locks, regrouped 0|1, the sum of all counters, 1 when nothing was known of the queue}
-- COST     O(consumers + groups)
--
-- `unique` and `locks` are counted too: a job whose digest is not in `unique` no longer owns it, and the two sums do
-- not show that. A caller that knows the sum of all counters from before sees without a further call that nothing has
-- happened.

-- include: find_group
-- include: padded
-- include: create_stream
-- include: may_write
-- include: read_counters

-- 1. Read.

local known = redis.call('HMGET', meta, 'delivered', 'lease_ms')
local delivered = known[1] -- the highest entry id that was ever given to a worker
local known_lease = known[2] or ''
local sums = {
  redis.call('XLEN', stream),
  redis.call('HLEN', entries),
  redis.call('ZCARD', scheduled),
  redis.call('ZCARD', failed),
  redis.call('ZCARD', completed),
  redis.call('HLEN', jobs),
  redis.call('HLEN', unique),
  redis.call('HLEN', locks),
}
local entry_count = sums[2]

-- 2. Give the queue what it lacks.

may_write(meta)
local is_new = redis.call('HSETNX', meta, 'schema', '1') == 1
if #known_lease > 15 or not string.match(known_lease, '^0*[1-9]%d*$') then
  redis.call('HSET', meta, 'lease_ms', lease_ms)
  known_lease = lease_ms
end
if redis.call('EXISTS', stream) == 0 then
  create_stream(stream, meta, delivered, entry_count)
  delivered = redis.call('HGET', meta, 'delivered')
end

-- 3. A stream without its group, or a group that was set back below an id that it gave out before, was damaged: workers
--    may hold any of its entries. The group is set to the end of the stream, so that no old id is read a second time.
--    `anew` remembers up to where entries must be appended anew; outside_acks finds them page by page.

local function last_made()
  local info = redis.call('XINFO', 'STREAM', stream)
  for n = 1, #info, 2 do
    if info[n] == 'last-generated-id' then
      return info[n + 1]
    end
  end
end

local group = find_group(stream)
local regrouped = 0
if not group or (delivered and padded(group['last-delivered-id']) < padded(delivered)) then
  -- A stream that was made anew by hand is lifted, so that `delivered` never goes down.
  if delivered and padded(last_made()) < padded(delivered) then
    local next_ms = tonumber(string.match(delivered, '%d+')) + 1
    redis.call('XSETID', stream, string.format('%.0f-0', next_ms))
  end
  redis.call('XGROUP', group and 'SETID' or 'CREATE', stream, 'delayq', '$')
  regrouped = 1
  redis.call('HSET', meta, 'anew', find_group(stream)['last-delivered-id'])
end
redis.call('HSET', meta, 'delivered', find_group(stream)['last-delivered-id'])

-- 4. Answer.

local _, counts = read_counters(meta)
local counted = 0
for _, count in ipairs(counts) do
  counted = counted + count
end
local reply = { tonumber(known_lease) }
for n, sum in ipairs(sums) do
  reply[n + 1] = sum
end
reply[#reply + 1] = regrouped
reply[#reply + 1] = counted
reply[#reply + 1] = is_new and 1 or 0
return reply
