-- batch_told: what was due of a batch has been sent.
--
-- moves    nothing
-- KEYS[1]  plan        hash    what the batch is and what was told of it
-- ARGV[1+] told        2 each  what (progress, catch, finally, then, stopped, onward), and how far (members that ended)
-- returns  1, or 0 for a batch that is not there
-- cost     O(1)
--
-- Why it begins with HDEL: a server at its memory limit lets a script go on that starts with it, so a full one drains.
-- Why progress only grows: two relays may send it at once, and the later answer may be of the earlier look.

local plan = KEYS[1]
if redis.call('HEXISTS', plan, 'plan') == 0 then return 0 end
redis.call('HDEL', plan, '')
for i = 1, #ARGV, 2 do
  local name, far = 'told:' .. ARGV[i], tonumber(ARGV[i + 1])
  if far > tonumber(redis.call('HGET', plan, name) or -1) then redis.call('HSET', plan, name, string.format('%.0f', far)) end
end
return 1
