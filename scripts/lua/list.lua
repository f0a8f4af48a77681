-- list: one page of the jobs in one state, in their order.
--
-- moves    nothing
-- KEYS[1]  set         zset    scheduled, failed or completed; for ready and reserved it is not read
-- KEYS[2]  jobs        hash    id -> envelope
-- KEYS[3]  stream      stream  group `delayq`
-- KEYS[4]  entries     hash    id -> entry id
-- KEYS[5]  meta        hash
-- ARGV[1]  state       text    scheduled | ready | reserved | failed | completed
-- ARGV[2]  after       text    the cursor a page before returned; '' = from the start
-- ARGV[3]  limit       int     jobs at most, 1..500
-- returns  {next cursor or '' at the end, then 3 each: id, time in ms (due, failed at, forget at), envelope or ''};
--          a page may be short, even empty, with a cursor: only '' is the end
-- cost     O(limit * log n); 1 MB of payload read, but one job at least
--
-- The cursor of a set is 'score id'. When that id is gone meanwhile, its place among equal scores is found by halving:
-- ranks move when jobs come and go, an (score, id) pair does not.
-- Why ids are compared byte by byte: the order of Lua's strings follows the server's locale, that of a set does not.
-- Without the group, or with one set back, every entry counts as delivered, so nothing is ready (see cancel).

local set, jobs, stream, entries, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local state, after, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local reply, bytes = { '' }, 0

local function add(id, at, envelope, cursor)
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3], reply[1] = id, at, envelope or '', cursor
  return (#reply - 1) / 3 < limit and bytes < 1000000
end
local function behind(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x > y end
  end
  return #a > #b
end
local function start_of(score, id)
  local rank = redis.call('ZRANK', set, id)
  if rank and redis.call('ZSCORE', set, id) == score then return rank + 1 end
  local low, high = redis.call('ZCOUNT', set, '-inf', '(' .. score), redis.call('ZCOUNT', set, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if behind(redis.call('ZRANGE', set, middle, middle)[1], id) then high = middle else low = middle + 1 end
  end
  return low
end
if state ~= 'ready' and state ~= 'reserved' then
  local score, id = string.match(after, '^(%S+) (.+)$')
  local rank = score and start_of(score, id) or 0
  while true do
    local page = redis.call('ZRANGE', set, rank, rank + 15, 'WITHSCORES')
    for i = 1, #page, 2 do
      local envelope = redis.call('HGET', jobs, page[i]) or ''
      bytes = bytes + #envelope
      if not add(page[i], page[i + 1], envelope, page[i + 1] .. ' ' .. page[i]) then return reply end
    end
    rank = rank + 16
    if #page < 32 then break end
  end
  reply[1] = ''
  return reply
end

local function pad(id)
  return (string.gsub(id, '%d+', function(digits) return string.rep('0', 20 - #digits) .. digits end))
end
local last, top = nil, redis.call('HGET', meta, 'delivered')
for _, group in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  local is = {}
  for i = 1, #group, 2 do is[group[i]] = group[i + 1] end
  if is.name == 'delayq' then last = is['last-delivered-id'] end
end
if last and top and pad(last) < pad(top) then last = nil end
if state == 'ready' and not last then return reply end
local from, to, largest = after ~= '' and after or '-', state == 'reserved' and last or '+', 0
if state == 'ready' and (from == '-' or pad(from) < pad(last)) then from = last end
while bytes < 1000000 do
  local chunk = largest > 0 and math.max(1, math.min(16, math.floor((1000000 - bytes) / largest))) or 1
  local page = redis.call('XRANGE', stream, from == '-' and '-' or '(' .. from, to, 'COUNT', chunk)
  for _, row in ipairs(page) do
    local is, size = {}, 100
    for i = 1, #row[2], 2 do is[row[2][i]], size = row[2][i + 1], size + #row[2][i + 1] end
    from, bytes, largest = row[1], bytes + size, math.max(largest, size)
    if is.id and redis.call('HGET', entries, is.id) == from and not add(is.id, is.due or '', is.job, from) then return reply end
  end
  if #page < chunk then
    reply[1] = ''
    return reply
  end
end
reply[1] = from
return reply
