-- tidy: repair a queue's stream, group and meta, and take the two sums.
--
-- moves    nothing
-- KEYS[1]  stream      stream  group `delayq`
-- KEYS[2]  entries     hash    id -> entry id
-- KEYS[3]  scheduled   zset    id -> due_ms
-- KEYS[4]  failed      zset    id -> failed at
-- KEYS[5]  completed   zset    id -> forget at
-- KEYS[6]  jobs        hash    id -> envelope
-- KEYS[7]  unique      hash    digest -> owning id
-- KEYS[8]  locks       hash    id -> digest
-- KEYS[9]  meta        hash
-- ARGV[1]  lease_ms    int     the lease of a queue seen for the first time
-- returns  {lease_ms, XLEN stream, HLEN entries, ZCARD scheduled, ZCARD failed, ZCARD completed, HLEN jobs,
--          HLEN unique, HLEN locks, regrouped 0|1, the sum of all counters, 1 when the queue was never spread,
--          1 when nothing was known of the queue}
-- cost     O(consumers + groups)
--
-- `unique` and `locks` are counted too: a job whose digest is not in `unique` no longer owns it, and the two sums do
-- not show that. A digest without a living owner is free (see schedule). A caller that knows the sum of all counters
-- from before sees without a further call that nothing has happened.

local stream = KEYS[1]
local entries = KEYS[2]
local scheduled = KEYS[3]
local failed = KEYS[4]
local completed = KEYS[5]
local jobs = KEYS[6]
local unique = KEYS[7]
local locks = KEYS[8]
local meta = KEYS[9]
local lease = ARGV[1]

-- Pads both numbers of an entry id with zeros, so that ids compare as text.
local function pad(entry_id)
  return (string.gsub(entry_id, '%d+', function(digits)
    return string.rep('0', 20 - #digits) .. digits
  end))
end

-- The first id above an entry's millisecond.
local function next_id(entry_id)
  return string.format('%.0f-0', tonumber(string.match(entry_id or '0', '%d+')) + 1)
end

local function find_last_made()
  local info = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      return info[i + 1]
    end
  end
end

local function find_last_delivered()
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local info = {}
    for i = 1, #group, 2 do
      info[group[i]] = group[i + 1]
    end
    if info.name == 'delayq' then
      return info['last-delivered-id']
    end
  end
end

local known = redis.call('HMGET', meta, 'delivered', 'lease_ms', 'shards')
local top = known[1] -- the highest entry id that was ever delivered
local known_lease = known[2] or ''
local held = redis.call('XLEN', stream)
local placed = redis.call('HLEN', entries)
local scheduled_count = redis.call('ZCARD', scheduled)
local failed_count = redis.call('ZCARD', failed)
local completed_count = redis.call('ZCARD', completed)
local job_count = redis.call('HLEN', jobs)
local unique_count = redis.call('HLEN', unique)
local lock_count = redis.call('HLEN', locks)

-- HDEL of nothing frees memory for Redis: a server at its memory limit allows it, and then runs the rest of the script.
redis.call('HDEL', meta, '')
local is_new = redis.call('HSETNX', meta, 'schema', '1') == 1
redis.call('HSETNX', meta, 'shards', '1')
if #known_lease > 15 or not string.match(known_lease, '^0*[1-9]%d*$') then
  redis.call('HSET', meta, 'lease_ms', lease)
  known_lease = lease
end

if held == 0 and redis.call('EXISTS', stream) == 0 then
  redis.call('XGROUP', 'CREATE', stream, 'delayq', '0', 'MKSTREAM')
  -- After a stream that was deleted, the new one starts with the next second (see schedule).
  if top or placed > 0 then
    local next_second = redis.call('TIME')[1] + 1 .. '000-0'
    top = pad(next_second) > pad(next_id(top)) and next_second or next_id(top)
    redis.call('XSETID', stream, top)
    redis.call('XGROUP', 'SETID', stream, 'delayq', '$')
  end
end

-- A stream without its group, or a group whose last-delivered id lies below one seen before, was damaged: workers may
-- hold any of its entries. The group is set to the end of the stream, so that no old id is read a second time. `anew`
-- remembers up to where entries must be appended anew; `unsettled` finds them page by page.
local last = find_last_delivered()
local regrouped = 0
if not last or (top and pad(last) < pad(top)) then
  -- A stream that was made anew by hand is lifted, so that `delivered` never goes down.
  if top and pad(find_last_made()) < pad(top) then
    redis.call('XSETID', stream, next_id(top))
  end
  redis.call('XGROUP', last and 'SETID' or 'CREATE', stream, 'delayq', '$')
  last = find_last_delivered()
  regrouped = 1
  redis.call('HSET', meta, 'anew', last)
end
redis.call('HSET', meta, 'delivered', last)

local counters = {
  'scheduled_total',
  'promoted_total',
  'acked_total',
  'released_total',
  'failed_total',
  'cancelled_total',
  'reclaimed_total',
  'handed_back_total',
}
local counted = 0
for _, total in ipairs(redis.call('HMGET', meta, unpack(counters))) do
  counted = counted + (tonumber(total or 0) or 0)
end
return {
  tonumber(known_lease),
  held,
  placed,
  scheduled_count,
  failed_count,
  completed_count,
  job_count,
  unique_count,
  lock_count,
  regrouped,
  counted,
  (known[3] or '1') == '1' and 1 or 0,
  is_new and 1 or 0,
}
