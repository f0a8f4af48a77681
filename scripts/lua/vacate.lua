-- vacate: give back a place of a limit, and learn who waits for it.
--
-- moves    nothing
-- KEYS[1]  holders   zset  'queue id entry' -> since when it holds a place of this key
-- KEYS[2]  waiting   zset  'queue id' -> since when it waits for one
-- KEYS[3]  places    zset  key -> how many places it has
-- ARGV[1]  key       text  whose place it is
-- ARGV[2]  limit     int   how many there are
-- ARGV[3]  holder    text  queue, id and entry id, blanks between; '' = nobody leaves, but who was woken did not come
-- returns  {1 or 0: whether it held one, who has waited longest and is to be woken, or ''}
-- cost     O(log n)
--
-- Why who is woken leaves the list: two places that become free must not wake the same one. A wake-up that gets lost
-- costs time, because who waits comes back by itself too.
-- Why nobody is woken for a place that was not held: whoever took it from its holder has passed it on.

local holders, waiting, places = KEYS[1], KEYS[2], KEYS[3]
local key, limit, holder = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if not limit then return redis.error_reply('ERR a limit is a number') end
for _, key_of in ipairs({ waiting, places }) do redis.call('ZCARD', key_of) end

local left = redis.call('ZREM', holders, holder)
local held, woken = redis.call('ZCARD', holders), nil
if held < limit and (left == 1 or holder == '') then woken = redis.call('ZPOPMIN', waiting)[1] end
if held == 0 and redis.call('ZCARD', waiting) == 0 then redis.call('ZREM', places, key) end
return { left, woken or '' }
