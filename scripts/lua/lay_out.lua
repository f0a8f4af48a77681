-- lay_out: tell a shard over how many shards its queue is spread.
--
-- moves    nothing
-- KEYS[1]  meta        hash
-- ARGV[1]  shards      text    the layout: '1', or 'epoch:count' and then '<' and each earlier count
-- ARGV[2]  instead     text    '' = take it when it is newer; else the layout that must be there
-- ARGV[3]  lease_ms    text    what a shard that joins the queue is to have; with `instead`: what must be there; '' = no word
-- ARGV[4]  paused      text    the same of paused_until_ms; '' = not paused
-- ARGV[5]  queue       text    its name, for the hint
-- ARGV[6]  switch      text    channel
-- returns  {layout there now, lease_ms or '', paused_until_ms or ''}
-- cost     O(1)
--
-- Why the first shard takes a change only with the lease and the pause it was prepared for: both were given to the shards
-- that join before, and hold for all of them only if nobody changed them meanwhile.
-- Why a hint that cannot be sent is no error: workers look now and then.

local meta = KEYS[1]
local shards, instead, lease, paused = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local function there()
  local is = redis.call('HMGET', meta, 'shards', 'lease_ms', 'paused_until_ms')
  return { is[1] or '1', is[2] or '', is[3] or '' }
end
local function epoch(text) return tonumber(string.match(text, '^(%d+):') or 0) end
local is = there()
if epoch(shards) <= epoch(is[1]) then return is end
if instead ~= '' and not (is[1] == instead and is[2] == lease and is[3] == paused) then return is end
redis.call('HSET', meta, 'schema', '1', 'shards', shards)
if instead == '' and lease ~= '' then
  redis.call('HSET', meta, 'lease_ms', lease)
  if paused == '' then redis.call('HDEL', meta, 'paused_until_ms') else redis.call('HSET', meta, 'paused_until_ms', paused) end
end
redis.pcall('PUBLISH', ARGV[6] or '', ARGV[5] or '')
return there()
