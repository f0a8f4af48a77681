-- configure: set what a queue keeps for itself in `meta`, where every script and worker reads it.
--
-- moves    nothing
-- KEYS[1]  meta        hash
-- ARGV[1]  lease_ms    int     '' = leave as it is
-- ARGV[2]  default_lease_ms int  for a queue seen for the first time
-- ARGV[3]  durability  text    memory, replicas:n or fsync: what is waited for; '' = leave as it is
-- ARGV[4]  queue       text    its name, for the hint
-- ARGV[5]  switch      text    channel of the hint
-- returns  the lease_ms in force
-- cost     O(1)

local meta = KEYS[1]
local lease = ARGV[1]
local default_lease = ARGV[2]
local durability = ARGV[3] or ''
if lease ~= '' and not string.match(lease, '^[1-9]%d*$') then
  return redis.error_reply('ERR a lease is a number of milliseconds above 0, not ' .. lease)
end

if redis.call('HSETNX', meta, 'schema', '1') == 1 then
  redis.call('HSET', meta, 'lease_ms', default_lease, 'shards', '1')
end
if lease ~= '' then
  redis.call('HSET', meta, 'lease_ms', lease)
end
if durability ~= '' then
  redis.call('HSET', meta, 'durability', durability)
end
-- A hint that cannot be sent is no error: supervisors look now and then.
redis.pcall('PUBLISH', ARGV[5] or '', ARGV[4] or '')
local known = redis.call('HGET', meta, 'lease_ms') or ''
return #known <= 15 and string.match(known, '^%d+$') or default_lease
