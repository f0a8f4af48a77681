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
-- ARGV[4]  line         text   '1' = a job that must wait gets a turn of its own
-- ARGV[5+] rate         5 each name, kind (window | sliding | bucket), most, per_ms, burst
-- returns  {1, 0}, or {0, ms until the job may come back}
-- cost     O(rates * log n); a sliding rate keeps 64 numbers at most
--
-- `counted` is a list of 'time:count'. A window has one: its start, and the starts in it. A sliding rate has one for
-- each start, up to 64; above that one for each sixtieth of `per_ms`, where a start counts until its whole sixtieth has
-- left the window. A bucket has one: when it will be full again, and how much it holds.
--
-- Turns: a thousand jobs that all come back at the instant when one place is free would meet a full rate again. So each
-- gets a turn of its own. `line` is the next free turn, and a new job goes behind it, also when there is room just now.
-- A turn is no promise: the counts alone decide.

local rates, rates_until, turns, passed, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = tonumber(ARGV[1])
local job = ARGV[2]
local start = ARGV[2] .. ' ' .. ARGV[3]
local lines_up = ARGV[4] == '1'
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
redis.call('ZCARD', rates_until)
redis.call('HLEN', counters)
if redis.call('ZSCORE', passed, start) then
  return { 1, 0 }
end
local turn = tonumber(redis.call('ZSCORE', turns, job) or nil)
if turn and turn > now then
  return { 0, turn - now }
end

-- Writes {time, count} pairs as text.
local function format_counts(pairs_of)
  local words = {}
  for n, pair in ipairs(pairs_of) do
    words[n] = string.format('%.3f:%.0f', pair[1], pair[2])
  end
  return table.concat(words, ' ')
end

-- Reads what a rate has counted. Sets `rate.counted` without this start and `rate.ends`, when all of it is over.
-- Returns the time when the rate has room, and the counts with this start.
local function count_start(rate, counted, burst)
  local width = 0 -- how far a count may rightly lie ahead of the clock
  if rate.kind == 'sliding' and rate.most > 64 then
    width = rate.per / 60
  elseif rate.kind == 'bucket' then
    width = burst * rate.gap
  end
  local kept = {}
  local total = 0
  for time, times in string.gmatch(counted, '(%S+):(%d+)') do
    -- A time further ahead is brought back: a clock that stepped back must not stop jobs for the length of the step.
    rate.ahead = rate.ahead or tonumber(time) > now + width
    time = math.min(tonumber(time), now + width)
    if rate.kind == 'bucket' or time + rate.per > now then
      kept[#kept + 1] = { time, tonumber(times) }
      total = total + times
    end
  end
  rate.counted = format_counts(kept)

  local top = kept[#kept]
  if rate.kind == 'bucket' then
    local full = math.max(now, top and top[1] or 0)
    rate.ends = full + rate.gap
    return math.max(now, full - (burst - 1) * rate.gap), format_counts({ { full + rate.gap, burst } })
  end
  local free = total < rate.most and now or kept[1][1] + rate.per
  local step = now
  if rate.kind == 'window' and top then
    step = top[1]
  elseif width > 0 then
    step = math.ceil(now / width) * width
  end
  if top and top[1] == step then
    top[2] = top[2] + 1
  else
    kept[#kept + 1] = { step, 1 }
  end
  rate.ends = kept[#kept][1] + rate.per
  return free, format_counts(kept)
end

-- Look at all rates. `slowest` is the one that makes the job wait the longest, until `due`.
local seen = {}
local due = now
local slowest = nil
for i = 5, #ARGV, 5 do
  local rate = { name = ARGV[i], kind = ARGV[i + 1], most = tonumber(ARGV[i + 2]), per = tonumber(ARGV[i + 3]) }
  local burst = tonumber(ARGV[i + 4])
  if not (burst and rate.most and rate.per and rate.most >= 1 and rate.per >= 1) then
    return redis.error_reply('ERR a rate is: name, kind, most, per_ms, burst')
  end
  local state = redis.call('HGET', rates, rate.name) or ''
  local kind, line, shown, counted = string.match(state, '^(%l+) %S+ %S+ (%S+) (%S+) (.*)$')
  if kind ~= rate.kind then
    line = 0
    shown = 0
    counted = ''
  end
  rate.gap = rate.per / rate.most
  rate.line = tonumber(line)
  rate.shown = tonumber(shown) -- when a job of the line last came back
  -- A line lasts as long as its jobs come. When none came for two seconds and three turns, it is forgotten: jobs of a
  -- queue that stands still hold up no other.
  local is_forsaken = rate.shown + math.max(2000, 3 * rate.gap) <= now or rate.shown > now + 1.1 * rate.per
  if rate.line <= now or is_forsaken then
    rate.line = 0
  end
  rate.free, rate.after = count_start(rate, counted, burst)
  if rate.free > now or (rate.line > 0 and not turn) then
    -- A job that comes less than two seconds after its turn goes first again.
    rate.front = rate.line == 0 or (turn and turn > now - 2000)
    local free_at = rate.front and rate.free or math.max(rate.free, rate.line)
    if not slowest or free_at > due then
      due = math.max(free_at, now)
      slowest = rate
    end
  end
  seen[#seen + 1] = rate
end

-- Stores a rate with these counts.
local function store(rate, counted)
  local state =
    string.format('%s %.0f %.0f %.3f %.3f %s', rate.kind, rate.most, rate.per, rate.line, rate.shown, counted)
  redis.call('HSET', rates, rate.name, state)
  redis.call('ZADD', rates_until, string.format('%.0f', math.ceil(math.max(rate.ends, rate.line))), rate.name)
end

redis.call('ZREMRANGEBYSCORE', passed, '-inf', string.format('%.0f', now - 10000))
redis.call('ZREMRANGEBYSCORE', turns, '-inf', string.format('%.0f', now - 60000))
local old = redis.call('ZRANGE', rates_until, '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, 5)
if #old > 0 then
  redis.call('HDEL', rates, unpack(old))
  redis.call('ZREM', rates_until, unpack(old))
end
redis.pcall('HINCRBY', counters, slowest and 'blocked_total' or 'taken_total', 1)

if not slowest then
  for _, rate in ipairs(seen) do
    rate.shown = turn and now or rate.shown
    store(rate, rate.after)
  end
  redis.call('ZREM', turns, job)
  redis.call('ZADD', passed, string.format('%.0f', now), start)
  return { 1, 0 }
end

for _, rate in ipairs(seen) do
  if rate.ahead then
    store(rate, rate.counted)
  end
end
due = math.ceil(due)
-- Only the slowest rate keeps the turn: the others have other users.
if lines_up then
  slowest.shown = slowest.front and due or turn and now or slowest.shown
  slowest.line = math.max(slowest.line, due + slowest.gap)
  store(slowest, slowest.counted)
  if redis.call('ZCARD', turns) < 100000 then
    redis.call('ZADD', turns, string.format('%.0f', due), job)
  end
end
return { 0, due - now }
