-- batch_told: write down that what was due of a batch has been sent.
--
-- moves    nothing
-- KEYS[1]  plan        hash    what the batch is, and what was told of it
-- ARGV[1]  round       int     how often it had been resumed when this was due
-- ARGV[2+] told        2 each  what (resumed, progress, cancel, catch, finally, then, stopped, onward), and how far:
--                              members that ended; for `cancel` the number of cancels, for `catch` the failure's round
-- returns  1, or 0 when there is no such batch
-- cost     O(1)

local plan = KEYS[1]
if redis.call('HEXISTS', plan, 'plan') == 0 then
  return 0
end

-- A server at its memory limit lets a script go on that starts with HDEL, so a full one drains.
redis.call('HDEL', plan, '')

-- What was told before a retry says nothing about what is due after it. But `then` and `onward`, by which the next jobs
-- go on, are said once and for all. A retry beside a cancel has put members back that the cancel may have passed
-- already.
local is_current = (redis.call('HGET', plan, 'round') or '0') == ARGV[1]
local is_lasting = { ['then'] = true, ['onward'] = true }
for i = 2, #ARGV, 2 do
  local what = ARGV[i]
  local far = tonumber(ARGV[i + 1])
  local counts = is_current or is_lasting[what]
  -- A failure before a retry needs no second `catch`; one after it does.
  if what == 'catch' then
    local is_same = tonumber(redis.call('HGET', plan, 'failed_round')) == far
    if is_same and not is_current then
      redis.call('HDEL', plan, 'failed_ms', 'failed_round', 'told:catch')
    end
    counts = is_same and is_current
  end
  -- It only grows: two relays may send at once, and the later answer may come from the earlier look.
  if counts and far > tonumber(redis.call('HGET', plan, 'told:' .. what) or -1) then
    redis.call('HSET', plan, 'told:' .. what, string.format('%.0f', far))
  end
end
return 1
