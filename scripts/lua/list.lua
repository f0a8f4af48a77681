-- list: one page of the jobs in one state, in their order.
--
-- moves    nothing
-- KEYS[1]  set         zset    scheduled, failed or completed; for ready and reserved it is not read
-- KEYS[2]  jobs        hash    id -> envelope
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  meta        hash
-- ARGV[1]  state       text    scheduled | ready | reserved | failed | completed
-- ARGV[2]  after       text    the cursor that the page before returned; '' = from the start
-- ARGV[3]  limit       int     jobs at most, 1..500
-- returns  {next cursor or '' at the end, then 3 each: id, time in ms (due, failed at, forget at), envelope or ''};
--          a page may be short, even empty, with a cursor: only '' is the end
-- cost     O(limit * log n); 1 MB of payload read, but one job at least

local set, jobs, stream, entries, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local state = ARGV[1]
local after = ARGV[2]
local limit = tonumber(ARGV[3])
local reply = { '' }
local bytes = 0

-- Adds a job; false when the page is full.
local function add_job(id, at, envelope, cursor)
  reply[#reply + 1] = id
  reply[#reply + 1] = at
  reply[#reply + 1] = envelope or ''
  reply[1] = cursor
  return (#reply - 1) / 3 < limit and bytes < 1000000
end

-- Whether one id comes behind another. It compares bytes, as a sorted set does; Lua's own order follows the server's
-- locale.
local function is_behind(one, other)
  for i = 1, math.min(#one, #other) do
    local a = string.byte(one, i)
    local b = string.byte(other, i)
    if a ~= b then
      return a > b
    end
  end
  return #one > #other
end

-- The rank behind the cursor 'score id'. When that id is gone, its place among equal scores is found by halving: ranks
-- move when jobs come and go, a pair of score and id does not.
local function find_rank(score, id)
  local rank = redis.call('ZRANK', set, id)
  if rank and redis.call('ZSCORE', set, id) == score then
    return rank + 1
  end
  local low = redis.call('ZCOUNT', set, '-inf', '(' .. score)
  local high = redis.call('ZCOUNT', set, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_behind(redis.call('ZRANGE', set, middle, middle)[1], id) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

if state ~= 'ready' and state ~= 'reserved' then
  local score, id = string.match(after, '^(%S+) (.+)$')
  local rank = score and find_rank(score, id) or 0
  while true do
    local page = redis.call('ZRANGE', set, rank, rank + 15, 'WITHSCORES')
    for i = 1, #page, 2 do
      local envelope = redis.call('HGET', jobs, page[i]) or ''
      bytes = bytes + #envelope
      if not add_job(page[i], page[i + 1], envelope, page[i + 1] .. ' ' .. page[i]) then
        return reply
      end
    end
    rank = rank + 16
    if #page < 32 then
      break
    end
  end
  reply[1] = ''
  return reply
end

-- Pads both numbers of an entry id with zeros, so that ids compare as text.
local function pad(entry_id)
  return (string.gsub(entry_id, '%d+', function(digits)
    return string.rep('0', 20 - #digits) .. digits
  end))
end

-- Entries up to `last` are reserved, those above it ready. Without the group, or with one that was set back, every
-- entry counts as delivered, so none is ready (see cancel).
local last = nil
local top = redis.call('HGET', meta, 'delivered')
for _, group in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  local info = {}
  for i = 1, #group, 2 do
    info[group[i]] = group[i + 1]
  end
  if info.name == 'delayq' then
    last = info['last-delivered-id']
  end
end
if last and top and pad(last) < pad(top) then
  last = nil
end
if state == 'ready' and not last then
  return reply
end
local from = after ~= '' and after or '-'
local to = state == 'reserved' and last or '+'
if state == 'ready' and (from == '-' or pad(from) < pad(last)) then
  from = last
end

-- Read entries in chunks as large as the largest entry so far allows.
local largest = 0
while bytes < 1000000 do
  local chunk = 1
  if largest > 0 then
    chunk = math.max(1, math.min(16, math.floor((1000000 - bytes) / largest)))
  end
  local page = redis.call('XRANGE', stream, from == '-' and '-' or '(' .. from, to, 'COUNT', chunk)
  for _, row in ipairs(page) do
    local fields = {}
    local size = 100
    for i = 1, #row[2], 2 do
      fields[row[2][i]] = row[2][i + 1]
      size = size + #row[2][i + 1]
    end
    from = row[1]
    bytes = bytes + size
    largest = math.max(largest, size)
    local is_owned = fields.id and redis.call('HGET', entries, fields.id) == from
    if is_owned and not add_job(fields.id, fields.due or '', fields.job, from) then
      return reply
    end
  end
  if #page < chunk then
    reply[1] = ''
    return reply
  end
end
reply[1] = from
return reply
