-- batch_told: what was due of a batch has been sent.
--
-- moves    nothing
-- KEYS[1]  plan        hash    what the batch is and what was told of it
-- ARGV[1]  round       int     how often it had been taken up again when this was due
-- ARGV[2+] told        2 each  what (resumed, progress, cancel, catch, finally, then, stopped, onward), and how far:
--                              members that ended; of `cancel` how many of them, of `catch` the round of the failure
-- returns  1, or 0 for a batch that is not there
-- cost     O(1)
--
-- Why it begins with HDEL: a server at its memory limit lets a script go on that starts with it, so a full one drains.
-- Why the round: what was told before a retry says nothing of what is due after it. But what goes on because of it,
-- `then` and `onward`, is said once and for all; and a failure before it needs no second `catch`, while one after it does.
-- A retry that came beside a cancel has put members back that whoever cancelled may have passed already.
-- Why progress only grows: two relays may send it at once, and the later answer may be of the earlier look.

local plan = KEYS[1]
if redis.call('HEXISTS', plan, 'plan') == 0 then return 0 end
redis.call('HDEL', plan, '')
local current = (redis.call('HGET', plan, 'round') or '0') == ARGV[1]
local lasting = { ['then'] = true, onward = true }
for i = 2, #ARGV, 2 do
  local what, far = ARGV[i], tonumber(ARGV[i + 1])
  local counts = current or lasting[what]
  if what == 'catch' then
    local same = tonumber(redis.call('HGET', plan, 'failed_round')) == far
    if same and not current then redis.call('HDEL', plan, 'failed_ms', 'failed_round', 'told:catch') end
    counts = same and current
  end
  if counts and far > tonumber(redis.call('HGET', plan, 'told:' .. what) or -1) then
    redis.call('HSET', plan, 'told:' .. what, string.format('%.0f', far))
  end
end
return 1
