-- queue_configure: set what a queue keeps for itself in `meta`, where every script and worker reads it.
--
-- MOVES  nothing
--
-- KEYS   jobs        hash    id -> envelope
-- KEYS   meta        hash    schema, lease_ms, shards
--
-- ARGV   lease_ms    text    '' = leave as it is
-- ARGV   default_lease_ms  int  lease of a queue that is seen for the first time
-- ARGV   shards      text    over how many shards the queue is spread; '' = leave as it is
-- ARGV   queue       text    its name, for the hint
-- ARGV   switch      text    channel of the hint
--
-- RETURNS  {lease_ms in force, shards in force or '', jobs that are here}. The number of shards changes only while no
--          job is here; otherwise nothing is written
-- COST     O(1)
--
-- A queue with shards is told in each of them, the first one last: producers read the number there.

-- include: whole_number

if lease_ms ~= '' and not string.match(lease_ms, '^[1-9]%d*$') then
  return redis.error_reply('ERR queue_configure: lease_ms is a whole number above 0, not ' .. lease_ms)
end
if shards ~= '' and not string.match(shards, '^[1-9]%d*$') then
  return redis.error_reply('ERR queue_configure: shards is a whole number above 0, not ' .. shards)
end

local job_count = redis.call('HLEN', jobs)
local shards_here = redis.call('HGET', meta, 'shards') or ''
local is_refused = shards ~= '' and shards ~= shards_here and job_count > 0
if not is_refused then
  if redis.call('HSETNX', meta, 'schema', '1') == 1 then
    redis.call('HSET', meta, 'lease_ms', default_lease_ms)
  end
  if lease_ms ~= '' then
    redis.call('HSET', meta, 'lease_ms', lease_ms)
  end
  if shards ~= '' then
    redis.call('HSET', meta, 'shards', shards)
    shards_here = shards
  end
  -- A hint that cannot be sent is no error: supervisors look now and then.
  redis.pcall('PUBLISH', switch, queue)
end
local in_force = whole_number(redis.call('HGET', meta, 'lease_ms')) or default_lease_ms
return { in_force, shards_here, job_count }
