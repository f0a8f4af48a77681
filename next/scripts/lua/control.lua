-- control: read or set what holds for all workers: a pause of everything, maintenance, and the call to restart.
--
-- MOVES  nothing
--
-- KEYS   control     hash    of no queue: paused_until_ms, paused_reason, maintenance_*, reason, restart_ms
--
-- ARGV   now         clock
-- ARGV   what        text    pause, maintenance or restart; '' = only read
-- ARGV   for_ms      int     how long; 0 = until it is ended; -1 = end it. For a restart: any
-- ARGV   reason      text    of the pause or the maintenance, for people; '' = none
-- ARGV   switch      text    channel of the hint
--
-- RETURNS  {now_ms, paused_until_ms, maintenance_until_ms, maintenance_since_ms, restart_ms, reason, paused_reason};
--          -1 = not in force, 0 as an until = until it is ended
-- COST     O(1)
--
-- One hash of no queue: workers read it with the pauses of their queues, in the same round trip, and it holds for
-- queues that no worker has seen yet.

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
  -- This time only grows: workers look for a change of it, and a clock that went back must not hide one.
  local last = tonumber(known[4]) or 0
  redis.call('HSET', control, 'restart_ms', string.format('%.0f', now < last and last + 1 or now))
elseif what == 'pause' and for_ms < 0 then
  redis.call('HDEL', control, 'paused_until_ms', 'paused_reason')
elseif what == 'pause' then
  redis.call('HSET', control, 'paused_until_ms', until_text, 'paused_reason', reason)
elseif what == 'maintenance' and for_ms < 0 then
  redis.call('HDEL', control, 'maintenance_until_ms', 'maintenance_since_ms', 'reason')
elseif what == 'maintenance' then
  -- Maintenance that is in force keeps the time of its start.
  local ends = tonumber(known[2])
  local is_in_force = ends and (ends == 0 or ends > now)
  local since = is_in_force and known[3] or now_text
  redis.call('HSET', control, 'maintenance_until_ms', until_text, 'maintenance_since_ms', since, 'reason', reason)
end
-- A hint that cannot be sent is no error: workers look now and then.
if what ~= '' then
  redis.pcall('PUBLISH', switch, '')
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
