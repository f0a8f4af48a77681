-- tidy: Create or repair the stream, the consumer group and `meta` of a queue, and return the sizes of its keys, so
-- that the caller can detect damaged data.
--
-- MOVES  nothing
--
-- KEYS   stream      stream  entries of ready and reserved jobs; consumer group `delayq`
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   scheduled   zset    id -> due time, epoch ms
-- KEYS   failed      zset    id -> time of failure, epoch ms
-- KEYS   completed   zset    id -> time to forget the job, epoch ms
-- KEYS   jobs        hash    id -> envelope JSON
-- KEYS   unique      hash    digest -> id of the job that owns the unique key; also rows of windows, see schedule.lua
-- KEYS   locks       hash    id -> digest of the job's unique key
-- KEYS   meta        hash    fields schema, lease_ms, delivered, anew and the counters
--
-- ARGV   lease_ms    int     lease in ms, stored if the queue has no valid one
--
-- RETURNS  {lease_ms, stream, entries, scheduled, failed, completed, jobs, unique, locks, regrouped, counted, is_new}
--            lease_ms   lease of this queue
--            stream     number of entries in the stream
--            entries, scheduled, failed, completed, jobs, unique, locks   number of rows in the key with this name
--            regrouped  1 = the stream existed, but its group was missing or damaged, and was set to the end of the
--                       stream; else 0
--            counted    sum of all counters (the fields `*_total` of `meta`)
--            is_new     1 = the queue is new, because `meta` had no field `schema`; else 0
-- COST     O(consumer groups)
--
-- Compare the returned numbers. The data is damaged if one of these conditions is false:
--
-- * `stream` = `entries`
-- * `jobs` = `scheduled` + `entries` + `failed` + `completed`
-- * `locks` <= `unique`. `unique` can be larger, because a window can outlive its job. If the row of a job in `unique`
--   is lost, another job could take the unique key of this job. Only the third condition can detect such a loss.
--
-- If the counter sum (`counted`) is unchanged since the caller's last call, there is nothing new for the statistics. If
-- the sum has fallen, the server lost data or the queue was removed.

-- include: find_group
-- include: padded
-- include: create_stream
-- include: may_write
-- include: read_counters

-- 1. Read `meta` and the sizes of the keys.

local known = redis.call('HMGET', meta, 'delivered', 'lease_ms')
-- `delivered`: the last-delivered id of the group at the end of the last `tidy`. If another script has created the
-- stream again since then, that script has stored the start of the new stream here. All entries of the new stream have
-- higher ids.
local delivered = known[1]
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

-- 2. Create the missing fields of `meta` and a missing stream.

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

-- 3. Repair the group if it is missing, or if its last-delivered id was moved backwards. In both cases, a worker may be
-- running the job of any entry. So the group is set to the end of the stream, and Redis does not deliver old entries
-- again. But some of these entries may never have been processed. The field `anew` has the last id of the stream at
-- this time. `outside_acks` finds the entries up to this id that are not pending for a worker, and the janitor then
-- appends their jobs again with `hand_back`. If the group was missing, its pending list is lost too, so a running job
-- may then run twice.

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
  -- If somebody recreated the stream by hand, its last id may be below `delivered`. XSETID then raises the
  -- last id of the stream, so that new entries get ids above `delivered`, and `delivered` never goes down.
  if delivered and padded(last_made()) < padded(delivered) then
    local next_ms = tonumber(string.match(delivered, '%d+')) + 1
    redis.call('XSETID', stream, string.format('%.0f-0', next_ms))
  end
  redis.call('XGROUP', group and 'SETID' or 'CREATE', stream, 'delayq', '$')
  regrouped = 1
  redis.call('HSET', meta, 'anew', find_group(stream)['last-delivered-id'])
end
redis.call('HSET', meta, 'delivered', find_group(stream)['last-delivered-id'])

-- 4. Reply.

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
