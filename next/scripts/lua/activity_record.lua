-- activity_record: Record how much each counter of `meta` has grown since the last call. The growth is added to the row
-- of this minute in `activity`, and to the row of this day in `history`.
--
-- MOVES  nothing
--
-- KEYS   activity    hash    minute of the day, 0..1439 -> counts of that minute, JSON; `sums` -> counts since the key
--                            was created, JSON
-- KEYS   meta        hash    field tallied and the counters
-- KEYS   history     hash    day since 1970, modulo 90 -> counts of that day, JSON
--
-- ARGV   now         clock   epoch ms, for tests; '' = server clock
--
-- RETURNS  1
-- COST     O(1). `activity` has a row of about 200 bytes for each minute with activity, at most 1,440. `history` has a
--          row for each day with activity, at most 90.
--
-- All scripts count jobs in `meta`, so the rows cover the work of all clients, in every language. The field `tallied`
-- has the counter values of the last call. So any number of processes may call the script, and nothing is counted
-- twice.

-- include: read_counters

local minutes_a_day = 1440
local days_kept = 90
local activity_ttl_ms = 90000000
local history_ttl_ms = 7862400000

-- 1. Compute the growth of each counter since the last call. A counter that is smaller than its last value started from
-- zero, because `meta` was created again.

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

-- 2. Add the growth to the rows. The field of a row is the minute of the day, so the next day overwrites it, and the
-- hash stays small. In the same way, the row of a day is overwritten after 90 days.

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

-- 3. Write. The rows are written first, because they need memory. So a full server refuses the whole call, and
-- `tallied` does not change.

redis.call('HSET', activity, minute_place, minute_row, 'sums', sums_row)
redis.call('PEXPIRE', activity, activity_ttl_ms)
redis.call('HSET', history, day_place, day_row)
redis.call('PEXPIRE', history, history_ttl_ms)
redis.call('HSET', meta, 'tallied', table.concat(totals_text, ' '))
return 1
