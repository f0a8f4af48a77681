-- lay_out: tell a shard over how many shards its queue is spread.
--
-- moves    nothing
-- KEYS[1]  meta        hash
-- ARGV[1]  shards      text    the layout: '1', or 'epoch:count' and then '<' and each earlier count
-- ARGV[2]  instead     text    the layout that must be here now; '' = any older one
-- ARGV[3]  lease_ms    text    what a shard that joins the queue gets; with `instead`: what must be here now; '' = none
-- ARGV[4]  paused      text    the same for paused_until_ms; '' = not paused
-- ARGV[5]  queue       text    its name, for the hint
-- ARGV[6]  switch      text    channel of the hint
-- returns  {layout here now, lease_ms or '', paused_until_ms or ''}
-- cost     O(1)
--
-- The shards that join get the lease and the pause first, then the first shard gets the layout. It takes it only with
-- the same lease and pause: only then do they hold for all shards.

local meta = KEYS[1]
local layout = ARGV[1]
local instead = ARGV[2]
local lease = ARGV[3]
local paused = ARGV[4]

local function read_meta()
  local known = redis.call('HMGET', meta, 'shards', 'lease_ms', 'paused_until_ms')
  return { known[1] or '1', known[2] or '', known[3] or '' }
end

local function read_epoch(text)
  return tonumber(string.match(text, '^(%d+):') or 0)
end

local here = read_meta()
if read_epoch(layout) <= read_epoch(here[1]) then
  return here
end
if instead ~= '' and not (here[1] == instead and here[2] == lease and here[3] == paused) then
  return here
end

redis.call('HSET', meta, 'schema', '1', 'shards', layout)
if instead == '' and lease ~= '' then
  redis.call('HSET', meta, 'lease_ms', lease)
  if paused == '' then
    redis.call('HDEL', meta, 'paused_until_ms')
  else
    redis.call('HSET', meta, 'paused_until_ms', paused)
  end
end
-- A hint that cannot be sent is no error: workers look now and then.
redis.pcall('PUBLISH', ARGV[6] or '', ARGV[5] or '')
return read_meta()
