-- activity_record: add the steps of a queue's counters to the rows of this minute and this day.
--
-- MOVES  nothing
--
-- KEYS   activity    hash    minute of the day -> what happened in it, JSON; `sums` -> all of them together
-- KEYS   meta        hash    counters, tallied
-- KEYS   history     hash    day since 1970, modulo 90 -> what happened on it, JSON
--
-- ARGV   now         clock
--
-- RETURNS  1
-- COST     O(1); one row of some 200 bytes for each minute in which anything happens, 1,440 at most; one for each day,
--          90 at most
--
-- Producers, workers and plain consumers of every language count in `meta` with what they do, so no other counting is
-- needed. `tallied` remembers how far the counters were written down. Any number of movers may call this, and nothing
-- is counted twice.

-- include: read_counters

local minutes_a_day = 1440
local days_kept = 90
local activity_ttl_ms = 90000000
local history_ttl_ms = 7862400000

-- 1. How far each counter went since it was written down. A counter below that began anew, with a new `meta`.

local names, totals = read_counters(meta)
local tallied = {}
for total in string.gmatch(redis.call('HGET', meta, 'tallied') or '', '%d+') do
  tallied[#tallied + 1] = tonumber(total)
end
local steps = {}
local totals_text = {}
for n, name in ipairs(names) do
  local step = totals[n] - (tallied[n] or 0)
  if step < 0 then
    step = totals[n]
  end
  if step > 0 then
    steps[name] = step
  end
  totals_text[n] = string.format('%.0f', totals[n])
end
if next(steps) == nil then
  return 1
end

-- 2. The rows with the steps added. A minute's row lies under the minute of the day, and the next day writes over it,
--    so the hash cannot grow; a day's row is kept in the same way for 90 days.

local function read_row(key, place)
  local is_readable, row = pcall(cjson.decode, redis.call('HGET', key, place) or '')
  return is_readable and type(row) == 'table' and row or {}
end

local function add_steps(row)
  for name, step in pairs(steps) do
    row[name] = (tonumber(row[name]) or 0) + step
  end
  return cjson.encode(row)
end

local function current_row(key, place, member, number)
  local row = read_row(key, place)
  return row[member] == number and row or { [member] = number }
end

local minute = math.floor(now / 60000)
local day = math.floor(now / 86400000)
local minute_place = string.format('%.0f', minute % minutes_a_day)
local day_place = string.format('%.0f', day % days_kept)
local minute_row = add_steps(current_row(activity, minute_place, 'minute', minute))
local day_row = add_steps(current_row(history, day_place, 'day', day))
local sums_row = add_steps(read_row(activity, 'sums'))

-- 3. Write. The rows come first: they grow, so a server at its memory limit refuses the whole call, and `tallied`
-- stays.

redis.call('HSET', activity, minute_place, minute_row, 'sums', sums_row)
redis.call('PEXPIRE', activity, activity_ttl_ms)
redis.call('HSET', history, day_place, day_row)
redis.call('PEXPIRE', history, history_ttl_ms)
redis.call('HSET', meta, 'tallied', table.concat(totals_text, ' '))
return 1
