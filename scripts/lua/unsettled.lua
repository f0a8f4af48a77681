-- unsettled: one page of delivered entries that are no longer pending, and what became of each.
--
-- moves    nothing
-- KEYS[1]  stream      stream  group `delayq`
-- KEYS[2]  entries     hash    id -> entry id
-- KEYS[3]  meta        hash
-- ARGV[1]  after       text    entry id the page starts behind; '-' = from the start
-- ARGV[2]  limit       int     entries at most, 1..500
-- ARGV[3]  seen        text    the marks its first page returned; '' for the first page itself
-- ARGV[4]  scope       text    delivered | all (beyond the delivered part only garbage is looked for)
-- returns  {next 'after', or '' at the end of the pass; marks; then 3 each: entry id, id or '', verdict}
--          verdict: acked (by a plain consumer: close it), again (nobody holds it: deliver it again),
--          garbage (no job's entry: bury it; in the scope `all` also what somebody holds)
-- cost     O(limit + consumers); 1 MB of payload, but one entry at least
--
-- "acked" is said only while the group has a consumer that is not delayq's own and none of delayq's own has vanished
-- since the last full pass: a deleted consumer leaves the same trace as an acknowledgement, and delivering a job twice
-- is better than losing it. Consumers of our form are recorded in `meta` (see renew); one recorded and missing has
-- vanished. What lies at or below the mark `anew` is delivered again in any case (see tidy). Both marks go at the end of
-- a pass that began with the same ones and found nothing on its last page: settle each page before asking for the next.
-- Why an entry missing in the page of pending rows is asked for by itself: rows of deleted entries fill that page too,
-- and running work must never look acknowledged.
-- Why HDEL of nothing comes first: it is a write that a server at its memory limit allows, and opens it for the rest.

local stream, entries, meta = KEYS[1], KEYS[2], KEYS[3]
local after, limit, seen, all = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4] == 'all'
local function pad(id)
  return (string.gsub(id, '%d+', function(digits) return string.rep('0', 20 - #digits) .. digits end))
end
redis.call('HLEN', entries)
local known = redis.call('HMGET', meta, 'consumers', 'vanished', 'anew')
local last
for _, group in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  local is = {}
  for i = 1, #group, 2 do is[group[i]] = group[i + 1] end
  if is.name == 'delayq' then last = is['last-delivered-id'] end
end
if not last then return { '', '' } end
redis.call('HDEL', meta, '')
local vanished, anew, now_here, names, foreign = known[2] or '', known[3], {}, {}, false
for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', stream, 'delayq')) do
  local name
  for i = 1, #row, 2 do if row[i] == 'name' then name = row[i + 1] end end
  if string.match(name, '^dq:[^:]+:%d+:%w+$') then
    names[#names + 1], now_here[name] = name, true
  else
    foreign = true
  end
end
for name in string.gmatch(known[1] or '', '%S+') do
  if not now_here[name] then vanished = vanished .. ' ' .. name end
end
local list = table.concat(names, ' ')
if list ~= (known[1] or '') then redis.call('HSET', meta, 'consumers', list) end
if vanished ~= (known[2] or '') then redis.call('HSET', meta, 'vanished', vanished) end

local marks = vanished .. '|' .. (anew or '')
if after == '-' then seen = marks end
local reply, bytes, largest, looked, ended = { '', marks }, 0, 0, 0, false
while not ended and looked < limit and bytes < 1000000 do
  local chunk = largest > 0 and math.max(1, math.min(16, limit - looked, math.floor((1000000 - bytes) / largest))) or 1
  local page = redis.call('XRANGE', stream, after == '-' and '-' or '(' .. after, all and '+' or last, 'COUNT', chunk)
  ended = #page < chunk
  local pending = {}
  local rows = #page > 0 and redis.call('XPENDING', stream, 'delayq', page[1][1], page[#page][1], chunk) or {}
  for _, row in ipairs(rows) do pending[row[1]] = true end
  for _, row in ipairs(page) do
    local is, size = {}, 0
    for i = 1, #row[2], 2 do is[row[2][i]], size = row[2][i + 1], size + #row[2][i + 1] end
    after, looked, bytes, largest = row[1], looked + 1, bytes + size, math.max(largest, size)
    local owned = is.id and redis.call('HGET', entries, is.id) == after
    local free = not pending[after] and #redis.call('XPENDING', stream, 'delayq', after, after, 1) == 0
    if (free and not (owned and pad(after) > pad(last))) or (all and not owned) then
      local old = anew and pad(after) <= pad(anew)
      local verdict = (old or not foreign or vanished ~= '') and 'again' or 'acked'
      if not owned then verdict = 'garbage' end
      reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = after, is.id or '', verdict
    end
  end
end
if not ended then reply[1] = after end
if ended and #reply == 2 and marks ~= '|' and marks == seen then redis.call('HDEL', meta, 'vanished', 'anew') end
return reply
