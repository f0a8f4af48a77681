-- unsettled: one page of delivered entries that are no longer pending, with a verdict on each.
--
-- moves    nothing
-- KEYS[1]  stream      stream  group `delayq`
-- KEYS[2]  entries     hash    id -> entry id
-- KEYS[3]  meta        hash
-- ARGV[1]  after       text    entry id the page starts behind; '-' = from the start
-- ARGV[2]  limit       int     entries at most, 1..500
-- ARGV[3]  seen        text    the marks its first page returned; '' for the first page itself
-- ARGV[4]  scope       text    delivered | all (beyond the delivered part only garbage is looked for)
-- returns  {next 'after', or '' at the end of the pass; marks; then 3 each: entry id, id or '', verdict};
--          verdict: acked (by a plain consumer: close it), again (no worker holds it: deliver it again),
--          garbage (no job's entry: bury it; in the scope `all` also entries that are held)
-- cost     O(limit + consumers); 1 MB of payload, but one entry at least
--
-- The verdict is `acked` only while the group has a consumer that is not delayq's own, and none of delayq's own has
-- vanished since the last full pass: a deleted consumer leaves the same trace as an acknowledgement, and it is better
-- to deliver a job twice than to lose it. renew records delayq's consumers in `meta`; one that is recorded and missing
-- has vanished. What lies at or below the mark `anew` is delivered again in any case (see tidy). Settle each page
-- before you ask for the next one: both marks go at the end of a pass that began with the same marks and found nothing
-- on its last page.

local stream, entries, meta = KEYS[1], KEYS[2], KEYS[3]
local after = ARGV[1]
local limit = tonumber(ARGV[2])
local seen = ARGV[3]
local looks_at_all = ARGV[4] == 'all'

-- Pads both numbers of an entry id with zeros, so that ids compare as text.
local function pad(entry_id)
  return (string.gsub(entry_id, '%d+', function(digits)
    return string.rep('0', 20 - #digits) .. digits
  end))
end

redis.call('HLEN', entries)
local known = redis.call('HMGET', meta, 'consumers', 'vanished', 'anew')
local known_consumers = known[1] or ''
local known_vanished = known[2] or ''
local anew = known[3]
local last = nil
for _, group in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  local info = {}
  for i = 1, #group, 2 do
    info[group[i]] = group[i + 1]
  end
  if info.name == 'delayq' then
    last = info['last-delivered-id']
  end
end
if not last then
  return { '', '' }
end

-- HDEL of nothing frees memory for Redis: a server at its memory limit allows it, and then runs the rest of the script.
redis.call('HDEL', meta, '')

-- Compare the consumers of the group with those recorded.
local is_here = {}
local names = {}
local foreign = false -- whether the group has a consumer that is not delayq's own
for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', stream, 'delayq')) do
  local name = nil
  for i = 1, #row, 2 do
    if row[i] == 'name' then
      name = row[i + 1]
    end
  end
  if string.match(name, '^dq:[^:]+:%d+:%w+$') then
    names[#names + 1] = name
    is_here[name] = true
  else
    foreign = true
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

-- Read entries in chunks as large as the largest entry so far allows.
local reply = { '', marks }
local bytes = 0
local largest = 0
local looked = 0
local is_end = false
while not is_end and looked < limit and bytes < 1000000 do
  local chunk = 1
  if largest > 0 then
    chunk = math.max(1, math.min(16, limit - looked, math.floor((1000000 - bytes) / largest)))
  end
  local from = after == '-' and '-' or '(' .. after
  local page = redis.call('XRANGE', stream, from, looks_at_all and '+' or last, 'COUNT', chunk)
  is_end = #page < chunk
  local is_pending = {}
  local rows = #page > 0 and redis.call('XPENDING', stream, 'delayq', page[1][1], page[#page][1], chunk) or {}
  for _, row in ipairs(rows) do
    is_pending[row[1]] = true
  end
  for _, row in ipairs(page) do
    local fields = {}
    local size = 0
    for i = 1, #row[2], 2 do
      fields[row[2][i]] = row[2][i + 1]
      size = size + #row[2][i + 1]
    end
    after = row[1]
    looked = looked + 1
    bytes = bytes + size
    largest = math.max(largest, size)
    local is_owned = fields.id and redis.call('HGET', entries, fields.id) == after
    -- An entry that the page of pending rows lacks is asked for by itself: rows of deleted entries fill that page too,
    -- and running work must never look acknowledged.
    local is_free = not is_pending[after] and #redis.call('XPENDING', stream, 'delayq', after, after, 1) == 0
    if (is_free and not (is_owned and pad(after) > pad(last))) or (looks_at_all and not is_owned) then
      local old = anew and pad(after) <= pad(anew)
      local verdict = (old or not foreign or vanished ~= '') and 'again' or 'acked'
      if not is_owned then
        verdict = 'garbage'
      end
      reply[#reply + 1] = after
      reply[#reply + 1] = fields.id or ''
      reply[#reply + 1] = verdict
    end
  end
end
if not is_end then
  reply[1] = after
end
if is_end and #reply == 2 and marks ~= '|' and marks == seen then
  redis.call('HDEL', meta, 'vanished', 'anew')
end
return reply
