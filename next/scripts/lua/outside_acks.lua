-- outside_acks: one page of delivered entries that are no longer pending, with a verdict on each.
--
-- MOVES  nothing
--
-- KEYS   stream      stream  group `delayq`
-- KEYS   entries     hash    id -> entry id, while the job is in the stream
-- KEYS   meta        hash    consumers, vanished, anew
--
-- ARGV   after       text    entry id behind which the page starts; '-' = from the start
-- ARGV   limit       int     entries at most, 1..500
-- ARGV   seen        text    the marks that the first page returned; '' for the first page itself
-- ARGV   scope       text    delivered | all (beyond the delivered part only garbage is looked for)
--
-- RETURNS  {next `after`, or '' at the end of the pass; marks; then for each: entry id, id or '', verdict}. Verdicts:
--          acked (by a plain consumer: close it), again (no worker holds it: deliver it again), garbage (no job's
--          entry: bury it; in the scope `all` also entries that are held)
-- COST     O(limit + consumers); 1 MB of payload, but one entry at least
--
-- The verdict is `acked` only while the group has a consumer that is not delayq's own, and none of delayq's own has
-- vanished since the last full pass: a deleted consumer leaves the same trace as an acknowledgement, and it is better
-- to deliver a job twice than to lose it. renew records delayq's consumers in `meta`; one that is recorded and missing
-- has vanished. What lies at or below the mark `anew` is delivered again in any case (see tidy). Settle each page
-- before you ask for the next one: both marks go at the end of a pass that began with the same marks and found nothing
-- on its last page.

-- include: find_group
-- include: padded
-- include: may_write

local max_bytes = 1000000
local max_chunk = 16
local looks_at_all = scope == 'all'

local group = find_group(stream)
if not group then
  return { '', '' }
end
local last = group['last-delivered-id']
local known = redis.call('HMGET', meta, 'consumers', 'vanished', 'anew')
local known_consumers = known[1] or ''
local known_vanished = known[2] or ''
local anew = known[3]
may_write(meta)

-- 1. Compare the consumers of the group with those that are recorded.

local is_here = {}
local names = {}
local has_foreign = false
for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', stream, 'delayq')) do
  local name = nil
  for n = 1, #row, 2 do
    if row[n] == 'name' then
      name = row[n + 1]
    end
  end
  if string.match(name, '^dq:[^:]+:%d+:%w+$') then
    names[#names + 1] = name
    is_here[name] = true
  else
    has_foreign = true
  end
end
local vanished = known_vanished
for name in string.gmatch(known_consumers, '%S+') do
  if not is_here[name] then
    vanished = vanished .. ' ' .. name
  end
end
local consumers = table.concat(names, ' ')
if consumers ~= known_consumers then
  redis.call('HSET', meta, 'consumers', consumers)
end
if vanished ~= known_vanished then
  redis.call('HSET', meta, 'vanished', vanished)
end

local marks = vanished .. '|' .. (anew or '')
if after == '-' then
  seen = marks
end

-- 2. Judge entries, read in chunks as large as the largest entry so far allows.

local reply = { '', marks }

-- Adds an entry to the reply, unless it is a job's own that a worker holds or that was not yet delivered.
local function judge(entry, fields, is_pending)
  local is_owned = fields['id'] and redis.call('HGET', entries, fields['id']) == entry
  -- An entry that the page of pending rows lacks is asked for by itself: rows of deleted entries fill that page too,
  -- and running work must never look acknowledged.
  local is_free = not is_pending and #redis.call('XPENDING', stream, 'delayq', entry, entry, 1) == 0
  local is_new = is_owned and padded(entry) > padded(last)
  if not ((is_free and not is_new) or (looks_at_all and not is_owned)) then
    return
  end
  local verdict = 'acked'
  if not is_owned then
    verdict = 'garbage'
  elseif (anew and padded(entry) <= padded(anew)) or not has_foreign or vanished ~= '' then
    verdict = 'again'
  end
  reply[#reply + 1] = entry
  reply[#reply + 1] = fields['id'] or ''
  reply[#reply + 1] = verdict
end

local bytes = 0
local largest = 0
local looked = 0
local is_end = false
while not is_end and looked < limit and bytes < max_bytes do
  local chunk = 1
  if largest > 0 then
    chunk = math.max(1, math.min(max_chunk, limit - looked, math.floor((max_bytes - bytes) / largest)))
  end
  local from = after == '-' and '-' or '(' .. after
  local page = redis.call('XRANGE', stream, from, looks_at_all and '+' or last, 'COUNT', chunk)
  is_end = #page < chunk
  local pending = {}
  local rows = #page > 0 and redis.call('XPENDING', stream, 'delayq', page[1][1], page[#page][1], chunk) or {}
  for _, row in ipairs(rows) do
    pending[row[1]] = true
  end
  for _, row in ipairs(page) do
    local fields = {}
    local size = 0
    for n = 1, #row[2], 2 do
      fields[row[2][n]] = row[2][n + 1]
      size = size + #row[2][n + 1]
    end
    after = row[1]
    looked = looked + 1
    bytes = bytes + size
    largest = math.max(largest, size)
    judge(after, fields, pending[after])
  end
end

-- 3. Say where to go on.

if not is_end then
  reply[1] = after
end
if is_end and #reply == 2 and marks ~= '|' and marks == seen then
  redis.call('HDEL', meta, 'vanished', 'anew')
end
return reply
