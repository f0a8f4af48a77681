-- tally: write down what happened in this minute and on this day: the steps of the queue's counters, and what a worker measured.
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
--          one of at most 1 KB for each day, 90 at most; one of some 300 bytes for each job name in each of 25 hours and
--          91 days, 201 names at most
--
-- Why the counters' own steps are taken here: producers, workers and plain consumers of every language leave them in
-- `meta` with what they do, so nobody has to count beside it. `tallied` remembers how far they were counted, so any
-- number of movers and workers may call this and nothing is counted twice.
-- Why a minute's row lies under the minute of the day: the day after writes over it, so the hash cannot grow. A row says
-- which minute it is. A day's row is kept in the same way for 90 days. The slot of an hour is its number modulo 25, that
-- of a day its number modulo 91; the first call in a later hour or day deletes the rows of the names in its slot.
-- Why names are limited: a job's name comes from outside. Names beyond the first 200 of an hour or day share the row ''.
-- Why the row is written first: it grows, so a server at its memory limit refuses all of it and `tallied` stays.
-- Why a counter that went down starts anew: somebody deleted `meta`.

local activity, meta, history, types_by_hour, types_by_day = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
for i = 3, #ARGV, 2 do
  if not tonumber(ARGV[i + 1]) then return redis.error_reply('ERR a measure is: name, how much') end
end

local function object_of(text)
  local readable, object = pcall(cjson.decode, text or '')
  return readable and type(object) == 'table' and object or nil
end

local job_types = {}
if ARGV[2] ~= '' then job_types = object_of(ARGV[2]) end
if not job_types then return redis.error_reply('ERR job_types is a JSON object') end
for _, steps in pairs(job_types) do
  if type(steps) ~= 'table' then return redis.error_reply('ERR a job type is a JSON object of numbers') end
  for _, step in pairs(steps) do
    if type(step) ~= 'number' then return redis.error_reply('ERR a job type is a JSON object of numbers') end
  end
end

local names = { 'scheduled', 'promoted', 'acked', 'released', 'failed', 'cancelled', 'reclaimed', 'handed_back' }
local fields = { 'tallied' }
for n, name in ipairs(names) do fields[n + 1] = name .. '_total' end
local known, steps, totals, seen = redis.call('HMGET', meta, unpack(fields)), {}, {}, {}
for total in string.gmatch(known[1] or '', '%d+') do seen[#seen + 1] = tonumber(total) end
for n, name in ipairs(names) do
  local total = tonumber(known[n + 1] or 0) or 0
  local step = total - (seen[n] or 0)
  if step < 0 then step = total end
  if step > 0 then steps[name] = step end
  totals[n] = string.format('%.0f', total)
end
for i = 3, #ARGV, 2 do steps[ARGV[i]] = (steps[ARGV[i]] or 0) + tonumber(ARGV[i + 1]) end
if next(steps) == nil and next(job_types) == nil then return 1 end

local function row_of(key, place, member, number)
  local row = object_of(redis.call('HGET', key, place))
  if not row or row[member] ~= number then row = { [member] = number } end
  return row
end

local function add(row, more)
  for name, step in pairs(more) do row[name] = (tonumber(row[name]) or 0) + step end
end

-- What becomes of one hash of job types: the fields to delete, and those to write.
local function types_in(key, unit_ms, slots)
  local number = math.floor(now / unit_ms)
  local slot = string.format('%.0f', number % slots)
  local index, old, rows, listed = object_of(redis.call('HGET', key, slot)), {}, {}, {}
  if not index or type(index.names) ~= 'table' then index = { names = {} } end
  if index.at ~= number then
    for n = 1, math.min(#index.names, 200) do old[n] = slot .. ':' .. tostring(index.names[n]) end
    old[#old + 1] = slot .. ':'
    index = { at = number, names = {} }
  end
  for _, name in ipairs(index.names) do listed[name] = true end
  for name, more in pairs(job_types) do
    if not listed[name] and name ~= '' and #index.names < 200 then
      listed[name] = true
      index.names[#index.names + 1] = name
    end
    local field = slot .. ':' .. (listed[name] and name or '')
    if not rows[field] then rows[field] = #old > 0 and { at = number } or row_of(key, field, 'at', number) end
    add(rows[field], more)
  end
  local written = { slot, cjson.encode(index) }
  for field, row in pairs(rows) do
    written[#written + 1] = field
    written[#written + 1] = cjson.encode(row)
  end
  return old, written
end

local minute, day = math.floor(now / 60000), math.floor(now / 86400000)
local place, day_place = string.format('%.0f', minute % 1440), string.format('%.0f', day % 90)
local row, day_row = row_of(activity, place, 'minute', minute), row_of(history, day_place, 'day', day)
local sums = object_of(redis.call('HGET', activity, 'sums')) or {}
add(row, steps)
add(day_row, steps)
add(sums, steps)
for _, key in ipairs({ types_by_hour, types_by_day }) do redis.call('HLEN', key) end -- raises for another type
local old_hours, hours, old_days, days
if next(job_types) ~= nil then
  old_hours, hours = types_in(types_by_hour, 3600000, 25)
  old_days, days = types_in(types_by_day, 86400000, 91)
end

redis.call('HSET', activity, place, cjson.encode(row), 'sums', cjson.encode(sums))
redis.call('PEXPIRE', activity, '90000000')
redis.call('HSET', history, day_place, cjson.encode(day_row))
redis.call('PEXPIRE', history, '7862400000')
redis.call('HSET', meta, 'tallied', table.concat(totals, ' '))
if hours then
  if #old_hours > 0 then redis.call('HDEL', types_by_hour, unpack(old_hours)) end
  redis.call('HSET', types_by_hour, unpack(hours))
  redis.call('PEXPIRE', types_by_hour, '93600000')
  if #old_days > 0 then redis.call('HDEL', types_by_day, unpack(old_days)) end
  redis.call('HSET', types_by_day, unpack(days))
  redis.call('PEXPIRE', types_by_day, '7948800000')
end
return 1
