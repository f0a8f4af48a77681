-- tally: add what has happened to the rows of this minute, hour and day: the steps of the queue's counters, what a
-- worker measured, and how the jobs of each name ran.
--
-- moves    nothing
-- KEYS[1]  activity       hash  minute of the day -> what happened in it, JSON; `sums` -> all of them together
-- KEYS[2]  meta           hash
-- KEYS[3]  history        hash  day since 1970, modulo 90 -> what happened on it, JSON
-- KEYS[4]  types_by_hour  hash  `slot:name` -> how the jobs of that name ran in one hour, JSON; slot -> its names, JSON
-- KEYS[5]  types_by_day   hash  the same for one day
-- ARGV[1]  now_ms         int   '' = the server's clock
-- ARGV[2]  job_types      JSON  job name -> {name -> how much is to be added}; '' = none
-- ARGV[3+] measure        2 each  name, how much is to be added to it
-- returns  1
-- cost     O(measures + job types); one row of some 200 bytes for each minute in which anything happens, 1,440 at most;
--          one of at most 1 KB for each day, 90 at most; one of some 300 bytes for each job name in each of 25 hours
--          and 91 days, 201 names at most
--
-- Producers, workers and plain consumers of every language count in `meta` with what they do, so no other counting is
-- needed. `tallied` remembers how far the counters were written down. Any number of movers and workers may call this,
-- and nothing is counted twice.

local activity, meta, history, types_by_hour, types_by_day = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
for i = 3, #ARGV, 2 do
  if not tonumber(ARGV[i + 1]) then
    return redis.error_reply('ERR a measure is: name, how much')
  end
end

-- Reads a JSON object; nil when the text is none.
local function read_object(text)
  local is_readable, object = pcall(cjson.decode, text or '')
  return is_readable and type(object) == 'table' and object or nil
end

local job_types = {}
if ARGV[2] ~= '' then
  job_types = read_object(ARGV[2])
end
if not job_types then
  return redis.error_reply('ERR job_types is a JSON object')
end
for _, counts in pairs(job_types) do
  if type(counts) ~= 'table' then
    return redis.error_reply('ERR a job type is a JSON object of numbers')
  end
  for _, count in pairs(counts) do
    if type(count) ~= 'number' then
      return redis.error_reply('ERR a job type is a JSON object of numbers')
    end
  end
end

-- How far each counter went since it was written down.
local names = { 'scheduled', 'promoted', 'acked', 'released', 'failed', 'cancelled', 'reclaimed', 'handed_back' }
local fields = { 'tallied' }
for n, name in ipairs(names) do
  fields[n + 1] = name .. '_total'
end
local known = redis.call('HMGET', meta, unpack(fields))
local seen = {}
for total in string.gmatch(known[1] or '', '%d+') do
  seen[#seen + 1] = tonumber(total)
end
local steps = {}
local totals = {}
for n, name in ipairs(names) do
  local total = tonumber(known[n + 1] or 0) or 0
  local step = total - (seen[n] or 0)
  if step < 0 then -- `meta` was deleted, and the counter started anew
    step = total
  end
  if step > 0 then
    steps[name] = step
  end
  totals[n] = string.format('%.0f', total)
end
for i = 3, #ARGV, 2 do
  steps[ARGV[i]] = (steps[ARGV[i]] or 0) + tonumber(ARGV[i + 1])
end
if next(steps) == nil and next(job_types) == nil then
  return 1
end

-- Reads a row; an empty one when it is of another minute, hour or day. A minute's row lies under the minute of the day,
-- and the next day writes over it, so the hash cannot grow. A day's row is kept in the same way for 90 days.
local function read_row(key, place, member, number)
  local row = read_object(redis.call('HGET', key, place))
  if not row or row[member] ~= number then
    row = { [member] = number }
  end
  return row
end

local function add_counts(row, counts)
  for name, count in pairs(counts) do
    row[name] = (tonumber(row[name]) or 0) + count
  end
end

-- What becomes of one hash of job types: the fields to delete, and those to write. The slot of an hour is its number
-- modulo 25, that of a day its number modulo 91. The first call in a later hour or day deletes the rows of the names in
-- its slot.
local function plan_job_types(key, unit_ms, slots)
  local number = math.floor(now / unit_ms)
  local slot = string.format('%.0f', number % slots)
  local index = read_object(redis.call('HGET', key, slot))
  if not index or type(index.names) ~= 'table' then
    index = { names = {} }
  end
  local old = {}
  if index.at ~= number then
    for n = 1, math.min(#index.names, 200) do
      old[n] = slot .. ':' .. tostring(index.names[n])
    end
    old[#old + 1] = slot .. ':'
    index = { at = number, names = {} }
  end

  -- A job's name comes from outside, so the names are limited: those beyond the first 200 share the row of the empty
  -- name.
  local is_listed = {}
  for _, name in ipairs(index.names) do
    is_listed[name] = true
  end
  local rows = {}
  for name, counts in pairs(job_types) do
    if not is_listed[name] and name ~= '' and #index.names < 200 then
      is_listed[name] = true
      index.names[#index.names + 1] = name
    end
    local field = slot .. ':' .. (is_listed[name] and name or '')
    if not rows[field] then
      rows[field] = #old > 0 and { at = number } or read_row(key, field, 'at', number)
    end
    add_counts(rows[field], counts)
  end

  local written = { slot, cjson.encode(index) }
  for field, row in pairs(rows) do
    written[#written + 1] = field
    written[#written + 1] = cjson.encode(row)
  end
  return old, written
end

local minute = math.floor(now / 60000)
local day = math.floor(now / 86400000)
local minute_place = string.format('%.0f', minute % 1440)
local day_place = string.format('%.0f', day % 90)
local minute_row = read_row(activity, minute_place, 'minute', minute)
local day_row = read_row(history, day_place, 'day', day)
local sums = read_object(redis.call('HGET', activity, 'sums')) or {}
add_counts(minute_row, steps)
add_counts(day_row, steps)
add_counts(sums, steps)

-- Read both keys, so that one of the wrong type raises its error before the first write.
redis.call('HLEN', types_by_hour)
redis.call('HLEN', types_by_day)
local old_hours = nil
local hours = nil
local old_days = nil
local days = nil
if next(job_types) ~= nil then
  old_hours, hours = plan_job_types(types_by_hour, 3600000, 25)
  old_days, days = plan_job_types(types_by_day, 86400000, 91)
end

-- The rows come first: they grow, so a server at its memory limit refuses the whole call, and `tallied` stays.
redis.call('HSET', activity, minute_place, cjson.encode(minute_row), 'sums', cjson.encode(sums))
redis.call('PEXPIRE', activity, '90000000')
redis.call('HSET', history, day_place, cjson.encode(day_row))
redis.call('PEXPIRE', history, '7862400000')
redis.call('HSET', meta, 'tallied', table.concat(totals, ' '))
if hours then
  if #old_hours > 0 then
    redis.call('HDEL', types_by_hour, unpack(old_hours))
  end
  redis.call('HSET', types_by_hour, unpack(hours))
  redis.call('PEXPIRE', types_by_hour, '93600000')
  if #old_days > 0 then
    redis.call('HDEL', types_by_day, unpack(old_days))
  end
  redis.call('HSET', types_by_day, unpack(days))
  redis.call('PEXPIRE', types_by_day, '7948800000')
end
return 1
