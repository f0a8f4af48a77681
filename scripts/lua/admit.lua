-- admit: count a start against rate limits, against all of them or none; or tell when to come back.
--
-- moves    nothing
-- KEYS[1]  rates        hash   rate -> 'kind most per_ms line shown counted …'
-- KEYS[2]  rates_until  zset   rate -> when it is as good as forgotten
-- KEYS[3]  turns        zset   'queue id' -> when that job may come back
-- KEYS[4]  passed       zset   'queue id entry' -> when it was let through, for 10 s: the same call again counts once
-- KEYS[5]  counters     hash
-- ARGV[1]  now_ms       int    '' = the server's clock
-- ARGV[2]  job          text   queue and id, a blank between
-- ARGV[3]  entry        text   the entry id
-- ARGV[4]  line         text   '1' = who must wait is given a turn of its own
-- ARGV[5+] rate         5 each name, kind (window | sliding | bucket), most, per_ms, burst
-- returns  {1, 0}, or {0, ms until it is its turn}
-- cost     O(rates * log n); a sliding rate keeps 64 numbers at most
--
-- Counted: a window is its start and a count. A sliding rate is 'time:count …', exact up to 64; above that by the
-- sixtieth, and a start counts until the end of its own has left the window. A bucket is when it will be full again,
-- and how much it holds.
-- Why turns: a thousand jobs that come back at one instant would meet a place for one. Each is given its own, `line` is
-- the next one, and who is new goes behind it, also when there is room just now. The line lasts as long as those in it
-- come: when none was `shown` for two seconds and three turns, it is forgotten, so that jobs of a queue that stands
-- still hold up nobody else. Who is late by less goes first again. A turn is no promise: the counts alone decide.
-- Why only the rate that makes it wait the longest keeps the turn: the others have other users.
-- Why times ahead of the clock are brought back to it: a clock that stepped back must not stop anybody for the step.

local rates, rates_until, turns, passed, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, job, me, lines_up = tonumber(ARGV[1]), ARGV[2], ARGV[2] .. ' ' .. ARGV[3], ARGV[4] == '1'
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
redis.call('ZCARD', rates_until); redis.call('HLEN', counters)
if redis.call('ZSCORE', passed, me) then return { 1, 0 } end
local turn = tonumber(redis.call('ZSCORE', turns, job) or nil)
if turn and turn > now then return { 0, turn - now } end

local function text(list)
  local words = {}
  for n, pair in ipairs(list) do words[n] = string.format('%.3f:%.0f', pair[1], pair[2]) end
  return table.concat(words, ' ')
end
local function count(is, counted, burst)
  local kept, total, width = {}, 0, is.kind == 'sliding' and is.most > 64 and is.per / 60 or 0
  if is.kind == 'bucket' then width = burst * is.gap end
  for at, times in string.gmatch(counted, '(%S+):(%d+)') do
    is.ahead = is.ahead or tonumber(at) > now + width
    at = math.min(tonumber(at), now + width)
    if is.kind == 'bucket' or at + is.per > now then kept[#kept + 1], total = { at, tonumber(times) }, total + times end
  end
  is.counted = text(kept)
  local top, free = kept[#kept], total < is.most and now or kept[1][1] + is.per
  local step = is.kind == 'window' and top and top[1] or width > 0 and math.ceil(now / width) * width or now
  if is.kind == 'bucket' then
    local full = math.max(now, top and top[1] or 0)
    is.ends, kept = full + is.gap, { { full + is.gap, burst } }
    return math.max(now, full - (burst - 1) * is.gap), text(kept)
  end
  if top and top[1] == step then top[2] = top[2] + 1 else kept[#kept + 1] = { step, 1 } end
  is.ends = kept[#kept][1] + is.per
  return free, text(kept)
end

local seen, due, last = {}, now, nil
for i = 5, #ARGV, 5 do
  local is = { name = ARGV[i], kind = ARGV[i + 1], most = tonumber(ARGV[i + 2]), per = tonumber(ARGV[i + 3]) }
  local burst = tonumber(ARGV[i + 4])
  if not (burst and is.most and is.per and is.most >= 1 and is.per >= 1) then
    return redis.error_reply('ERR a rate is: name, kind, most, per_ms, burst')
  end
  local state = redis.call('HGET', rates, is.name) or ''
  local kind, line, shown, counted = string.match(state, '^(%l+) %S+ %S+ (%S+) (%S+) (.*)$')
  if kind ~= is.kind then line, shown, counted = 0, 0, '' end
  is.gap, is.line, is.shown = is.per / is.most, tonumber(line), tonumber(shown)
  local forsaken = is.shown + math.max(2000, 3 * is.gap) <= now or is.shown > now + 1.1 * is.per
  if is.line <= now or forsaken then is.line = 0 end
  is.free, is.after = count(is, counted, burst)
  if is.free > now or (is.line > 0 and not turn) then
    is.front = is.line == 0 or (turn and turn > now - 2000)
    local at = is.front and is.free or math.max(is.free, is.line)
    if not last or at > due then due, last = math.max(at, now), is end
  end
  seen[#seen + 1] = is
end

local function keep(is, counted)
  local state = string.format('%s %.0f %.0f %.3f %.3f %s', is.kind, is.most, is.per, is.line, is.shown, counted)
  redis.call('HSET', rates, is.name, state)
  redis.call('ZADD', rates_until, string.format('%.0f', math.ceil(math.max(is.ends, is.line))), is.name)
end
redis.call('ZREMRANGEBYSCORE', passed, '-inf', string.format('%.0f', now - 10000))
redis.call('ZREMRANGEBYSCORE', turns, '-inf', string.format('%.0f', now - 60000))
local old = redis.call('ZRANGE', rates_until, '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, 5)
if #old > 0 then redis.call('HDEL', rates, unpack(old)); redis.call('ZREM', rates_until, unpack(old)) end
redis.pcall('HINCRBY', counters, last and 'blocked_total' or 'taken_total', 1)
if not last then
  for _, is in ipairs(seen) do is.shown = turn and now or is.shown; keep(is, is.after) end
  redis.call('ZREM', turns, job); redis.call('ZADD', passed, string.format('%.0f', now), me)
  return { 1, 0 }
end
for _, is in ipairs(seen) do if is.ahead then keep(is, is.counted) end end
due = math.ceil(due)
if lines_up then
  last.shown = last.front and due or turn and now or last.shown
  last.line = math.max(last.line, due + last.gap)
  keep(last, last.counted)
  if redis.call('ZCARD', turns) < 100000 then redis.call('ZADD', turns, string.format('%.0f', due), job) end
end
return { 0, due - now }
