-- tidy: look after a queue's frame: its stream, its group and its meta, and take the two sums.
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
-- Why unique and locks are counted too: a job whose digest is not on record owns it no longer, and no sum of ours shows
-- it. The other way round harms nobody: a digest without a living owner is free (see schedule).
-- A stream without its group, or a group whose last-delivered id lies below one seen before, was damaged: somebody
-- may hold any of its entries. The group is then set to the stream's end, so that nobody reads an old id a second
-- time, and `anew` remembers up to where entries must be appended anew; `unsettled` does that page by page.
-- Why a new stream may start with the next second: see schedule. One that somebody else made anew is lifted likewise, so
-- that `delivered` never goes down.
-- Why the counters are added up: who knows that sum from before sees that nothing has happened, without a call.
-- Why HDEL of nothing comes first: it is a write that a server at its memory limit allows, and opens it for the rest.

local stream, entries, scheduled, failed, completed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local jobs, unique, locks, meta = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local lease = ARGV[1]
local function pad(id)
  return (string.gsub(id, '%d+', function(digits) return string.rep('0', 20 - #digits) .. digits end))
end
local function above(id)
  return string.format('%.0f-0', tonumber(string.match(id or '0', '%d+')) + 1)
end
local function last_made()
  local stream_is = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #stream_is, 2 do
    if stream_is[i] == 'last-generated-id' then return stream_is[i + 1] end
  end
end
local function last_delivered()
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local is = {}
    for i = 1, #group, 2 do is[group[i]] = group[i + 1] end
    if is.name == 'delayq' then return is['last-delivered-id'] end
  end
end
local known = redis.call('HMGET', meta, 'delivered', 'lease_ms', 'shards')
local top, regrouped, held, placed = known[1], 0, redis.call('XLEN', stream), redis.call('HLEN', entries)
local waiting, given_up, kept = redis.call('ZCARD', scheduled), redis.call('ZCARD', failed), redis.call('ZCARD', completed)
local payloads, digests, owners = redis.call('HLEN', jobs), redis.call('HLEN', unique), redis.call('HLEN', locks)

redis.call('HDEL', meta, '')
local new = redis.call('HSETNX', meta, 'schema', '1') == 1
redis.call('HSETNX', meta, 'shards', '1')
if #(known[2] or '') > 15 or not string.match(known[2] or '', '^0*[1-9]%d*$') then redis.call('HSET', meta, 'lease_ms', lease) known[2] = lease end
if held == 0 and redis.call('EXISTS', stream) == 0 then
  redis.call('XGROUP', 'CREATE', stream, 'delayq', '0', 'MKSTREAM')
  if top or placed > 0 then
    local soon = redis.call('TIME')[1] + 1 .. '000-0'
    top = pad(soon) > pad(above(top)) and soon or above(top)
    redis.call('XSETID', stream, top)
    redis.call('XGROUP', 'SETID', stream, 'delayq', '$')
  end
end
local last = last_delivered()
if not last or (top and pad(last) < pad(top)) then
  if top and pad(last_made()) < pad(top) then redis.call('XSETID', stream, above(top)) end
  redis.call('XGROUP', last and 'SETID' or 'CREATE', stream, 'delayq', '$')
  last, regrouped = last_delivered(), 1
  redis.call('HSET', meta, 'anew', last)
end
redis.call('HSET', meta, 'delivered', last)
local counters, counted = { 'scheduled_total', 'promoted_total', 'acked_total', 'released_total', 'failed_total',
  'cancelled_total', 'reclaimed_total', 'handed_back_total' }, 0
for _, total in ipairs(redis.call('HMGET', meta, unpack(counters))) do counted = counted + (tonumber(total or 0) or 0) end
return { tonumber(known[2] or lease), held, placed, waiting, given_up, kept, payloads, digests, owners, regrouped, counted,
  (known[3] or '1') == '1' and 1 or 0, new and 1 or 0 }
