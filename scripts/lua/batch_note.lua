-- batch_note: write down what became of a batch's members, and say what is to be sent because of it.
--
-- moves    nothing
-- KEYS[1]  plan        hash    what the batch is and what was told of it
-- KEYS[2]  pending     hash    member -> its queue ('' = a batch)
-- KEYS[3]  succeeded   set     members
-- KEYS[4]  broken      hash    member that failed -> its queue
-- KEYS[5]  skipped     hash    member that will not run -> its queue
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  seal        0|1     1 = all members it begins with are known and on their way
-- ARGV[3]  cancel      0|1     1 = no more of it shall run
-- ARGV[4]  keep_ms     int     how long a finished batch is kept
-- ARGV[5]  keep_broken_ms int  the same, when members failed
-- ARGV[6+] member      2 each  id, word: done, failed, skipped or pending (it runs again)
-- returns  {0} for a batch that is not there; else {1, plan, pending, succeeded, broken, skipped, how often it was taken
--          up again, created_ms, cancelled_ms or '', finished_ms or '', then what is due and has not been told: progress,
--          cancel (what waits), catch, finally, then, stopped, onward}
-- cost     O(members); at most 500 a call
--
-- Why by membership and not by counting down: a note that comes twice, or late, must not count twice.
-- Why it says what is due again and again until batch_told: whoever was to send it may have died.
-- Why a member that failed may still be done: somebody retried it. When it was the last one, `then` is due after all.
-- Why it begins with HDEL: a server at its memory limit lets a script go on that starts with it, so a full one drains.

local plan, pending, succeeded, broken, skipped = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, seal, cancel, keep, keep_broken = tonumber(ARGV[1]), ARGV[2] == '1', ARGV[3] == '1', ARGV[4], ARGV[5]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)
for _, key in ipairs({ pending, broken, skipped }) do redis.call('HLEN', key) end
redis.call('SCARD', succeeded)
local text = redis.call('HGET', plan, 'plan')
if not text then return { 0 } end

redis.call('HDEL', plan, '')
local from, into = { done = { pending, broken, skipped }, failed = { pending, skipped } }, { failed = broken }
from.skipped, into.skipped, from.pending, into.pending = { pending }, skipped, { broken, skipped }, pending
local again = false
for i = 6, #ARGV, 2 do
  local id, word = ARGV[i], ARGV[i + 1]
  for _, key in ipairs(from[word] or {}) do
    local queue = redis.call('HGET', key, id)
    if queue then
      redis.call('HDEL', key, id)
      if into[word] then redis.call('HSET', into[word], id, queue) else redis.call('SADD', succeeded, id) end
      again = again or word == 'pending'
    end
  end
end
if again then
  redis.call('HDEL', plan, 'finished_ms', 'cancelled_ms', 'told:cancel', 'told:catch', 'told:finally', 'told:stopped')
  redis.call('HINCRBY', plan, 'round', 1)
end
if seal and redis.call('HSETNX', plan, 'sealed_ms', at) == 1 then redis.call('HDEL', plan, 'told:cancel') end
local left, bad, out = redis.call('HLEN', pending), redis.call('HLEN', broken), redis.call('HLEN', skipped)
local good = redis.call('SCARD', succeeded)
local is, names = {}, {
  'allow', 'sealed_ms', 'cancelled_ms', 'finished_ms', 'created_ms',
  'told:progress', 'told:cancel', 'told:catch', 'told:finally', 'told:then', 'told:stopped', 'told:onward', 'round',
}
local found = redis.call('HMGET', plan, unpack(names))
for n, name in ipairs(names) do is[name] = found[n] end
local function set(name) is[name] = at; redis.call('HSET', plan, name, at) end
if not is.cancelled_ms and not is.finished_ms and (cancel or (bad > 0 and is.allow ~= '1')) then set('cancelled_ms') end
if is.sealed_ms and left == 0 and not is.finished_ms then set('finished_ms') end
for _, key in ipairs(KEYS) do
  if is.finished_ms then redis.call('PEXPIRE', key, bad + out > 0 and keep_broken or keep) else redis.call('PERSIST', key) end
end

local reply = { 1, text, left, good, bad, out, is.round or 0, is.created_ms or '', is.cancelled_ms or '', is.finished_ms or '' }
local ended, well = is.finished_ms, bad + out == 0
local function due(name, when) if when and not is['told:' .. name] then reply[#reply + 1] = name end end
if good + bad + out > tonumber(is['told:progress'] or 0) then reply[#reply + 1] = 'progress' end
due('cancel', is.cancelled_ms and left > 0)
due('catch', bad > 0)
due('finally', ended)
due('then', ended and well)
due('onward', ended and (well or (is.allow == '1' and not is.cancelled_ms)))
due('stopped', ended and not well and (is.allow ~= '1' or is.cancelled_ms))
return reply
