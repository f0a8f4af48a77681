-- sweep: drop windows of unique keys that are over. Nothing else frees them.
--
-- moves    nothing
-- KEYS[1]  unique      hash    digest -> owning id; `id until_ms` for a window
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2+] window      1 each  digest of a row that is over, as far as the caller knows
-- returns  how many it dropped; others were taken again meanwhile, or are no windows
-- cost     O(windows); at most 500 a call
--
-- It need not be punctual: a window that is over keeps no job out, it only takes room.

local unique = KEYS[1]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local over = {}
for i = 2, #ARGV do
  local until_ms = tonumber(string.match(redis.call('HGET', unique, ARGV[i]) or '', ' (%d+)$'))
  if until_ms and until_ms <= now then
    over[#over + 1] = ARGV[i]
  end
end
return #over > 0 and redis.call('HDEL', unique, unpack(over)) or 0
