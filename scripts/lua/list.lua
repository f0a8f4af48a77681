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
-- returns  {next cursor or '' at the end, then 3 each: id, time in ms (due, failed at, forget at), envelope or ''}
-- cost     O(limit * log n); 1 MB of payload, but one job at least
--
-- The cursor of a set is 'score id'. When that id is gone meanwhile, its place among equal scores is found by halving:
-- ranks move when jobs come and go, an (score, id) pair does not.

local set, jobs, stream, entries, meta = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local state, after, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local reply, bytes = { '' }, 0

local function add(id, at, envelope, cursor)
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = id, at, envelope or ''
  bytes, reply[1] = bytes + #(envelope or ''), cursor
  return (#reply - 1) / 3 < limit and bytes < 1000000
end
local function start_of(score, id)
  local rank = redis.call('ZRANK', set, id)
  if rank and redis.call('ZSCORE', set, id) == score then return rank + 1 end
  local low, high = redis.call('ZCOUNT', set, '-inf', '(' .. score), redis.call('ZCOUNT', set, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if redis.call('ZRANGE', set, middle, middle)[1] <= id then low = middle + 1 else high = middle end
  end
  return low
end
if state ~= 'ready' and state ~= 'reserved' then
  local score, id = string.match(after, '^(%S+) (.+)$')
  local rank = score and start_of(score, id) or 0
  while true do
    local page = redis.call('ZRANGE', set, rank, rank + 15, 'WITHSCORES')
    for i = 1, #page, 2 do
      if not add(page[i], page[i + 1], redis.call('HGET', jobs, page[i]), page[i + 1] .. ' ' .. page[i]) then return reply end
    end
    rank = rank + 16
    if #page < 32 then break end
  end
  reply[1] = ''
  return reply
end

local last = nil
for _, group in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  local is = {}
  for i = 1, #group, 2 do is[group[i]] = group[i + 1] end
  if is.name == 'delayq' then last = is['last-delivered-id'] end
end
local from, to = after, state == 'reserved' and (last or '+') or '+'
if from == '' then from = state == 'reserved' and '-' or (last or '+') end
while true do
  local page = redis.call('XRANGE', stream, from == '-' and '-' or '(' .. from, to, 'COUNT', 16)
  for _, row in ipairs(page) do
    local is = {}
    for i = 1, #row[2], 2 do is[row[2][i]] = row[2][i + 1] end
    from = row[1]
    if is.id and redis.call('HGET', entries, is.id) == from and not add(is.id, is.due or '', is.job, from) then return reply end
  end
  if #page < 16 then break end
end
reply[1] = ''
return reply
