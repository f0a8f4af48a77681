-- queue_configure: Set the lease and the number of shards of a queue. All scripts and workers read both values in
-- `meta`.
--
-- MOVES  nothing
--
-- KEYS   jobs              hash    id -> envelope JSON
-- KEYS   meta              hash    fields schema, lease_ms, shards
--
-- ARGV   lease_ms          text    new lease in ms; '' = do not change the lease
-- ARGV   default_lease_ms  int     lease in ms, stored if the queue is new and lease_ms is ''
-- ARGV   shards            text    new number of shards; '' = do not change the number
--
-- RETURNS  {lease_ms, shards, jobs}
--            lease_ms  lease in ms after this call
--            shards    number of shards after this call, or '' if it was never set
--            jobs      number of jobs in this queue
-- COST     O(1)
--
-- The number of shards can change only while the queue has no job. If `shards` is a new number and the queue has a job,
-- the script writes nothing, not even the lease, and returns the old values. To change the number, call the script for
-- all old and new shards with the old number plus 1000, so that nobody can store a job. Then call it with the new
-- number, first for the first shard, because clients read the number there, and then for the other shards.

-- include: whole_number

if lease_ms ~= '' and not string.match(lease_ms, '^[1-9]%d*$') then
  return redis.error_reply('ERR queue_configure: lease_ms must be a whole number above 0, not ' .. lease_ms)
end
if shards ~= '' and not string.match(shards, '^[1-9]%d*$') then
  return redis.error_reply('ERR queue_configure: shards must be a whole number above 0, not ' .. shards)
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
end
local in_force = whole_number(redis.call('HGET', meta, 'lease_ms')) or default_lease_ms
return { in_force, shards_here, job_count }
