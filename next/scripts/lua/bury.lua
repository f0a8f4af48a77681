-- bury: Move stream entries that belong to no job to `failed`, so that they neither block a worker nor get lost.
--
-- MOVES  no job -> failed, under the id `x-<entry id>`
--
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   stream      stream  entries of ready and reserved jobs; consumer group `delayq`
-- KEYS   scheduled   zset    id -> due time, epoch ms
-- KEYS   failed      zset    id -> time of failure, epoch ms
-- KEYS   completed   zset    id -> time to forget the job, epoch ms
-- KEYS   jobs        hash    id -> envelope JSON; here also the raw bytes of such an entry
-- KEYS   errors      hash    id -> failure JSON
-- KEYS   meta        hash    field failed_total
--
-- ARGV   now         clock   epoch ms, for tests; '' = server clock
-- ARGV*  garbage     {entry failure}   failure: failure JSON to store for the entry
--
-- RETURNS  A list with a word for each entry:
--            buried   the entry belonged to no job, and moved to `failed`
--            dropped  the entry was a surplus copy of a job, and was deleted
--            adopted  the job had lost its row in `entries`; a new row names this entry
--            left     nothing changed: the entry is gone, or is the current entry of a job
--          The list may be shorter than `garbage`: call again with the remaining rows.
-- COST     O(entries + bytes); send at most 500 rows; a call reads up to 1 MB of entries, but at least one entry
--
-- An entry is `adopted` only if its job has no other state, and if the entry is pending or not yet delivered.

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

-- Returns true if the entry is pending or not yet delivered. Any other entry was acknowledged by `reclaim`, because it
-- was not the current entry of a job. If the row in `entries` named such an entry, the job would look as if a plain
-- consumer had completed it. So the entry is `dropped`, and `mend` schedules the job again.
local function is_held_or_new(entry)
  if #redis.pcall('XPENDING', stream, 'delayq', entry, entry, 1) > 0 then
    return true
  end
  local group = find_group(stream)
  return group and padded(entry) > padded(group['last-delivered-id'])
end

-- Returns the field `job` of an entry, or the text of all its fields if it has no such field.
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
