-- control: Read or set the operators' switches for all workers: pause, maintenance and restart.
--
-- MOVES  nothing
--
-- KEYS   control     hash    fields paused_until_ms, paused_reason, maintenance_until_ms, maintenance_since_ms, reason,
--                            restart_ms
--
-- ARGV   now         clock   epoch ms, for tests; '' = server clock
-- ARGV   what        text    switch to set: `pause`, `maintenance` or `restart`; '' = only read
-- ARGV   for_ms      int     length of the pause or the maintenance in ms; 0 = without end; -1 = end the pause or the
--                            maintenance. Not used for a restart.
-- ARGV   reason      text    reason of the pause or the maintenance, for people; '' = none
--
-- RETURNS  {now_ms, paused_until_ms, maintenance_until_ms, maintenance_since_ms, restart_ms, reason, paused_reason}
--            now_ms                time of this call
--            paused_until_ms       end of the pause; 0 = without end; -1 = off
--            maintenance_until_ms  end of the maintenance; 0 = without end; -1 = off
--            maintenance_since_ms  start of the maintenance; -1 = off
--            restart_ms            time of the last restart request; -1 = none
--            reason                reason of the maintenance, or ''
--            paused_reason         reason of the pause, or ''
--          All times are epoch ms.
-- COST     O(1)
--
-- The key `delayq:control` belongs to no queue. Workers read it together with the pauses of their queues, in one round
-- trip. The switches also apply to queues that are created later.

-- include: may_write

local fields = {
  'paused_until_ms', 'maintenance_until_ms', 'maintenance_since_ms', 'restart_ms', 'reason', 'paused_reason',
}
local known = redis.call('HMGET', control, unpack(fields))
local now_text = string.format('%.0f', now)
local until_text = string.format('%.0f', for_ms == 0 and 0 or now + for_ms)

if what ~= '' then
  may_write(control)
end
if what == 'restart' then
  -- Workers exit when this time gets later. Each request stores a later time than the request before, so that workers
  -- see the request even after the clock went back.
  local last = tonumber(known[4]) or 0
  redis.call('HSET', control, 'restart_ms', string.format('%.0f', now < last and last + 1 or now))
elseif what == 'pause' and for_ms < 0 then
  redis.call('HDEL', control, 'paused_until_ms', 'paused_reason')
elseif what == 'pause' then
  redis.call('HSET', control, 'paused_until_ms', until_text, 'paused_reason', reason)
elseif what == 'maintenance' and for_ms < 0 then
  redis.call('HDEL', control, 'maintenance_until_ms', 'maintenance_since_ms', 'reason')
elseif what == 'maintenance' then
  -- If maintenance is on already, its start time stays the same.
  local ends = tonumber(known[2])
  local is_in_force = ends and (ends == 0 or ends > now)
  local since = is_in_force and known[3] or now_text
  redis.call('HSET', control, 'maintenance_until_ms', until_text, 'maintenance_since_ms', since, 'reason', reason)
end

known = redis.call('HMGET', control, unpack(fields))
local reply = { now }
for n = 1, 4 do
  reply[n + 1] = tonumber(known[n]) or -1
end
for n = 2, 3 do
  if reply[n] > 0 and reply[n] <= now then
    reply[n] = -1
  end
end
if reply[3] < 0 then
  reply[4] = -1
end
reply[6] = reply[3] >= 0 and known[5] or ''
reply[7] = reply[2] >= 0 and known[6] or ''
return reply
