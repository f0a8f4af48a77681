-- progress: store what running jobs report of themselves: how far they are, and what they have found so far.
--
-- moves    nothing
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  progress    hash    id -> the job's last progress report
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2+] told        3 each  id, entry id, report (a JSON object without its closing brace, not empty)
-- returns  1 or 0 for each: written, or fenced (the entry is not this job's any more)
-- cost     O(reports); at most 500 and 1 MB a call; the client keeps to that
--
-- Every script that ends a delivery drops its report: ack, done, finish, release, fail, hand_back, reclaim, recover,
-- mend. So a report always comes from the worker that has the job now. A full server refuses this script: it grows, and
-- a job runs as well without it.

local entries, progress = KEYS[1], KEYS[2]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = ',"at_ms":' .. string.format('%.0f', now) .. '}'

local ids = {}
local reply = {}
for i = 2, #ARGV, 3 do
  ids[#ids + 1] = ARGV[i]
end
if #ids == 0 then
  return reply
end
if #ARGV ~= 3 * #ids + 1 then
  return redis.error_reply('ERR a line is: id, entry id, what it tells')
end
redis.call('HLEN', progress)
local rows = {}
for n, entry in ipairs(redis.call('HMGET', entries, unpack(ids))) do
  local is_owned = entry == ARGV[3 * n]
  reply[n] = is_owned and 1 or 0
  if is_owned then
    rows[#rows + 1] = ids[n]
    rows[#rows + 1] = ARGV[3 * n + 1] .. at
  end
end
if #rows > 0 then
  redis.call('HSET', progress, unpack(rows))
end
return reply
