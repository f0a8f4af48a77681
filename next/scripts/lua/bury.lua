-- bury: move stream entries that are not jobs to the failed, so that they neither block a worker nor get lost.
--
-- MOVES  (no job) -> failed, under the id `x-<entry id>`; a stray copy of a job that has another place: dropped; an
--        entry whose row was lost: given back to its job, which has no other place, while a worker holds it or it was
--        not yet delivered
--
-- KEYS   entries     hash    id -> entry id, while the job is in the stream
-- KEYS   stream      stream  group `delayq`
-- KEYS   scheduled   zset    id -> due, epoch ms
-- KEYS   failed      zset    id -> failed at, epoch ms
-- KEYS   completed   zset    id -> forget at, epoch ms
-- KEYS   jobs        hash    id -> envelope; here also: the raw bytes
-- KEYS   errors      hash    id -> failure, JSON
-- KEYS   meta        hash    counters
--
-- ARGV   now         clock
-- ARGV*  garbage     {entry failure}   failure: JSON
--
-- RETURNS  a word for each entry that was looked at: buried, dropped, adopted (given back), or left (it is gone, or is
--          a job's own entry after all). A shorter list means: call again with the rest
-- COST     O(entries) and their bytes, which lie in Redis already; at most 500 a call, 1 MB, but one at least

-- include: read_entry
-- include: find_group
-- include: padded
-- include: may_write
-- include: count

local max_bytes = 1000000
local now_text = string.format('%.0f', now)
may_write(meta)

local function has_place(id)
  return redis.call('HEXISTS', entries, id) == 1
    or redis.call('ZSCORE', scheduled, id)
    or redis.call('ZSCORE', failed, id)
    or redis.call('ZSCORE', completed, id)
end

-- Whether a worker holds the entry, or it was not yet delivered. One that was delivered and is no longer pending was
-- acknowledged by reclaim, because no job owned it; as a job's own it would look like work that was done. mend then
-- schedules that job anew.
local function is_held_or_new(entry)
  if #redis.pcall('XPENDING', stream, 'delayq', entry, entry, 1) > 0 then
    return true
  end
  local group = find_group(stream)
  return group and padded(entry) > padded(group['last-delivered-id'])
end

-- The bytes of the field `job`, or all fields when the entry has none.
local function raw_bytes(entry, fields)
  if fields['job'] then
    return fields['job']
  end
  local words = redis.call('XRANGE', stream, entry, entry)[1][2]
  local lines = {}
  for n = 1, #words, 2 do
    lines[#lines + 1] = words[n] .. '=' .. words[n + 1]
  end
  return table.concat(lines, '\n')
end

local reply = {}
local bytes = 0
local gone = {}
local buried = 0
local scores = {} -- failed at, id, failed at, id …
local payloads = {} -- id, raw bytes, id, raw bytes …
local failures = {} -- id, failure, id, failure …

for _, row in ipairs(garbage) do
  local fields, size = read_entry(stream, row.entry)
  bytes = bytes + size
  if bytes > max_bytes and #reply > 0 then
    break
  end
  local id = fields['id']
  local is_known = id and redis.call('HEXISTS', jobs, id) == 1
  local word = 'left'
  if is_known and not has_place(id) and is_held_or_new(row.entry) then
    redis.call('HSET', entries, id, row.entry)
    word = 'adopted'
  elseif next(fields) and not (id and redis.call('HGET', entries, id) == row.entry) then
    gone[#gone + 1] = row.entry
    word = is_known and 'dropped' or 'buried'
  end
  if word == 'buried' then
    local new_id = 'x-' .. row.entry
    buried = buried + 1
    scores[#scores + 1] = now_text
    scores[#scores + 1] = new_id
    payloads[#payloads + 1] = new_id
    payloads[#payloads + 1] = raw_bytes(row.entry, fields)
    failures[#failures + 1] = new_id
    failures[#failures + 1] = row.failure
  end
  reply[#reply + 1] = word
end

if #gone > 0 then
  redis.call('XACK', stream, 'delayq', unpack(gone))
  redis.call('XDEL', stream, unpack(gone))
end
if buried > 0 then
  redis.call('ZADD', failed, unpack(scores))
  redis.call('HSET', jobs, unpack(payloads))
  redis.call('HSET', errors, unpack(failures))
  count(meta, 'failed_total', buried)
end
return reply
