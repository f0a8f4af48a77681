-- batch_open: begin a batch, or let it have more members; who is a member is known before any of them can end.
--
-- moves    nothing
-- KEYS[1]  plan        hash    what the batch is and what was told of it
-- KEYS[2]  pending     hash    member -> its queue ('' = a batch)
-- KEYS[3]  succeeded   set     members
-- KEYS[4]  broken      hash    member that failed -> its queue
-- KEYS[5]  skipped     hash    member that will not run -> its queue
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  plan        json    of a batch that begins; '' = more members for one that has
-- ARGV[3]  allow       0|1     1 = failures do not end it
-- ARGV[4]  origin      text    of a batch that begins: the batch and the chain it is a part of; '' = none
-- ARGV[5+] member      2 each  id, queue
-- returns  {answer, members added}: opened, sealed (it was begun already, with all its members), taken (one of another
--          origin has this id), added, unknown, finished or cancelled
-- cost     O(members); at most 500 a call
--
-- Why a member that is known is not added again: a resent call must not make one pending that has ended meanwhile.
-- Why one that is sealed is left as it is: beginning it again is how its producer, who lost an answer, asks after it.
-- Why not one that a cancel sealed, and whose cancel was lifted: some of its members may never have been sent.
-- Why the origin: a batch whose turn comes may find another one under its id. Whoever waits for it would wait for ever.
-- Why more members are refused once it has finished or was cancelled: what follows its end has been sent.

local plan, pending, succeeded, broken, skipped = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, text, allow, origin = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
for _, key in ipairs({ pending, broken, skipped }) do redis.call('HLEN', key) end
redis.call('SCARD', succeeded)
local known = redis.call('HMGET', plan, 'plan', 'finished_ms', 'cancelled_ms', 'sealed_ms', 'origin')
if text == '' and not known[1] then return { 'unknown', 0 } end
if text == '' and (known[2] or known[3]) then return { known[2] and 'finished' or 'cancelled', 0 } end

if text ~= '' and (known[5] or origin) ~= origin then return { 'taken', 0 } end
if text ~= '' and known[4] and (known[4] ~= '0' or known[2] or known[3]) then return { 'sealed', 0 } end
if text ~= '' and redis.call('HSETNX', plan, 'plan', text) == 1 then
  redis.call('HSET', plan, 'allow', allow, 'origin', origin, 'created_ms', string.format('%.0f', now))
end
local added = 0
for i = 5, #ARGV, 2 do
  local id = ARGV[i]
  local there = redis.call('SISMEMBER', succeeded, id) + redis.call('HEXISTS', broken, id) + redis.call('HEXISTS', skipped, id)
  if there == 0 then added = added + redis.call('HSETNX', pending, id, ARGV[i + 1]) end
end
return { text == '' and 'added' or 'opened', added }
