-- outside_acks: Find delivered entries that are no longer pending, page by page, and return a verdict on each. Such
-- entries come from plain consumers, which acknowledge by `XACK` alone, and from damaged data.
--
-- MOVES  nothing
--
-- KEYS   stream      stream  entries of ready and reserved jobs; consumer group `delayq`
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   meta        hash    fields consumers, vanished, anew
--
-- ARGV   after       text    entry id after which the page starts; '-' = start of the stream
-- ARGV   limit       int     maximum number of entries to look at, 1..500
-- ARGV   seen        text    '' for the first page of a pass; for all other pages, `marks` from the reply to the first
--                            page
-- ARGV   scope       text    `delivered` = look at delivered entries only; `all` = look at undelivered entries too, and
--                            report an undelivered or pending entry if it is garbage
--
-- RETURNS  One flat list: next, marks, then entry, id and verdict for each entry that was found.
--            next     `after` for the next page; '' = this was the last page
--            marks    state of the fields `vanished` and `anew`; pass the marks of the first page as `seen`
--            entry    entry id
--            id       job id, or '' if the entry has none
--            verdict  acked    a plain consumer acknowledged the job: call `ack`
--                     again    no worker has the job: call `hand_back` with unheld = 1
--                     garbage  the entry belongs to no job: call `bury`. If `scope` is `all`, the entry may be pending.
-- COST     O(limit + consumers); reads up to 1 MB of entries, but at least one entry
--
-- Consumers of delayq have names of the form `dq:<host>:<pid>:<random>`; all other consumers are plain consumers. If a
-- consumer of delayq is deleted, its entries look as if they had been acknowledged. To deliver a job twice is better
-- than to lose the job. So the verdict is `acked` only if the group has a plain consumer, and if no consumer of delayq
-- has vanished since the last full pass. `renew` records the consumers of delayq in `meta`. A recorded consumer that is
-- missing in the group has vanished. Entries up to the id `anew` may never have been processed, because the group was
-- repaired (see `tidy`). Their verdict is `again` instead of `acked`.
--
-- Handle each page before you ask for the next one. On the last page, the script deletes the fields `vanished` and
-- `anew` if they have not changed since the first page, and if the last page found nothing. For this comparison, pass
-- the marks of the first page with every other page. If a consumer vanishes between two pages, its entries may be on a
-- page that was already read. The marks then differ on the last page, and the fields stay for the next pass.

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

-- 1. Compare the consumers of the group with the recorded consumers.

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

-- 2. Judge the entries. The entries are read in chunks, which are small if a large entry was seen before.

local reply = { '', marks }

-- Adds an entry to the reply if the entry was delivered and is no longer pending, or if `scope` is `all` and the entry
-- is not the current entry of a job.
local function judge(entry, fields, is_pending)
  local is_owned = fields['id'] and redis.call('HGET', entries, fields['id']) == entry
  -- If an entry is missing in the page of pending entries, it is looked up individually. The page may be incomplete,
  -- because deleted entries count towards its limit. Without this second look, a running job could look acknowledged.
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

-- 3. Return the position of the next page. On the last page, delete the fields `vanished` and `anew` if all pages were
-- read with their current values.

if not is_end then
  reply[1] = after
end
if is_end and #reply == 2 and marks ~= '|' and marks == seen then
  redis.call('HDEL', meta, 'vanished', 'anew')
end
return reply
