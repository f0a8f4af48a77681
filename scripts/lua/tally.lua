-- tally: write down what happened in this minute and on this day: the steps of the queue's counters, and what a worker measured.
--
-- moves    nothing
-- KEYS[1]  activity    hash    minute of the day -> what happened in it, JSON; `sums` -> all of them together
-- KEYS[2]  meta        hash
-- KEYS[3]  history     hash    day since 1970, modulo 90 -> what happened on it, JSON
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2+] measure     2 each  name, how much is to be added to it
-- returns  1
-- cost     O(measures); one row of some 200 bytes for each minute in which anything happens, 1,440 at most; one of at
--          most 1 KB for each day, 90 at most
--
-- Why the counters' own steps are taken here: producers, workers and plain consumers of every language leave them in
-- `meta` with what they do, so nobody has to count beside it. `tallied` remembers how far they were counted, so any
-- number of movers and workers may call this and nothing is counted twice.
-- Why a minute's row lies under the minute of the day: the day after writes over it, so the hash cannot grow. A row says
-- which minute it is. A day's row is kept in the same way for 90 days.
-- Why the row is written first: it grows, so a server at its memory limit refuses all of it and `tallied` stays.
-- Why a counter that went down starts anew: somebody deleted `meta`.

local activity, meta, history = KEYS[1], KEYS[2], KEYS[3]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
for i = 2, #ARGV, 2 do
  if not tonumber(ARGV[i + 1]) then return redis.error_reply('ERR a measure is: name, how much') end
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
for i = 2, #ARGV, 2 do steps[ARGV[i]] = (steps[ARGV[i]] or 0) + tonumber(ARGV[i + 1]) end
if next(steps) == nil then return 1 end

local function row_of(key, place, member, number)
  local readable, row = pcall(cjson.decode, redis.call('HGET', key, place) or '')
  if not readable or type(row) ~= 'table' or row[member] ~= number then row = { [member] = number } end
  return row
end

local minute, day = math.floor(now / 60000), math.floor(now / 86400000)
local place, day_place = string.format('%.0f', minute % 1440), string.format('%.0f', day % 90)
local row, day_row = row_of(activity, place, 'minute', minute), row_of(history, day_place, 'day', day)
local known_sums, sums = pcall(cjson.decode, redis.call('HGET', activity, 'sums') or '')
if not known_sums or type(sums) ~= 'table' then sums = {} end
for name, step in pairs(steps) do
  for _, counts in ipairs({ row, day_row, sums }) do counts[name] = (tonumber(counts[name]) or 0) + step end
end
redis.call('HSET', activity, place, cjson.encode(row), 'sums', cjson.encode(sums))
redis.call('PEXPIRE', activity, '90000000')
redis.call('HSET', history, day_place, cjson.encode(day_row))
redis.call('PEXPIRE', history, '7862400000')
redis.call('HSET', meta, 'tallied', table.concat(totals, ' '))
return 1
