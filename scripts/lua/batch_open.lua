-- batch_open: begin a batch, or add members to one. Every member is known before any of them can end.
--
-- moves    nothing
-- KEYS[1]  plan        hash    what the batch is, and what was told of it
-- KEYS[2]  pending     hash    member -> its queue ('' = a batch)
-- KEYS[3]  succeeded   set     members
-- KEYS[4]  broken      hash    member that failed -> its queue
-- KEYS[5]  skipped     hash    member that will not run -> its queue
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  plan        json    of a batch that begins; '' = add members to one that has begun
-- ARGV[3]  allow       0|1     1 = failures do not end it
-- ARGV[4]  origin      text    of a batch that begins: the batch and the chain it is a part of; '' = none
-- ARGV[5+] member      2 each  id, queue
-- returns  {answer, members added}: opened, sealed (it was begun before, with all its members), taken (a batch of
--          another origin has this id), added, unknown, finished or cancelled
-- cost     O(members); at most 500 a call

local plan, pending, succeeded, broken, skipped = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = tonumber(ARGV[1])
local text = ARGV[2]
local allow = ARGV[3]
local origin = ARGV[4]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
for _, key in ipairs({ pending, broken, skipped }) do
  redis.call('HLEN', key)
end
redis.call('SCARD', succeeded)

local known = redis.call('HMGET', plan, 'plan', 'finished_ms', 'cancelled_ms', 'sealed_ms', 'origin')
local is_known = known[1]
local is_finished = known[2]
local is_cancelled = known[3]
local sealed_ms = known[4]
if text == '' then
  if not is_known then
    return { 'unknown', 0 }
  end
  -- No more members once it has ended: what follows its end was sent.
  if is_finished or is_cancelled then
    return { is_finished and 'finished' or 'cancelled', 0 }
  end
else
  -- A chain that waits for its batch would wait for ever for another batch with the same id.
  if (known[5] or origin) ~= origin then
    return { 'taken', 0 }
  end
  -- A producer that lost an answer begins its batch again, and learns that it is sealed. A cancel seals with the time
  -- 0; when that was lifted, some members may never have been sent, so the batch is opened again.
  if sealed_ms and (sealed_ms ~= '0' or is_finished or is_cancelled) then
    return { 'sealed', 0 }
  end
  if redis.call('HSETNX', plan, 'plan', text) == 1 then
    redis.call('HSET', plan, 'allow', allow, 'origin', origin, 'created_ms', string.format('%.0f', now))
  end
end

-- A known member is not added again: a resent call must not make a member pending that has ended meanwhile.
local added = 0
for i = 5, #ARGV, 2 do
  local id = ARGV[i]
  local ended =
    redis.call('SISMEMBER', succeeded, id) + redis.call('HEXISTS', broken, id) + redis.call('HEXISTS', skipped, id)
  if ended == 0 then
    added = added + redis.call('HSETNX', pending, id, ARGV[i + 1])
  end
end
return { text == '' and 'added' or 'opened', added }
