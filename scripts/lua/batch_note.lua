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
--          up again, created_ms, cancelled_ms or '', finished_ms or '', then what is due and has not been told: resumed
--          (it was taken up again), progress, cancel (what waits), catch, finally, then, stopped, onward}
-- cost     O(members); at most 500 a call
--
-- Why by membership and not by counting down: a note that comes twice, or late, must not count twice.
-- Why it says what is due again and again until batch_told: whoever was to send it may have died.
-- Why a failure cancels when it is written down and not for as long as it stands: members that failed are retried one
-- by one, and those that are still to come must not cancel those that wait already. For the same reason `catch` is due
-- when there was a failure since it was told last, and not when there is one.
-- Why a cancel seals: a producer that died among its members leaves a batch that could not finish otherwise.
-- Why what waits is only cancelled once it is sealed: before, a member may be known that is not in its queue yet.
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
local again, fresh = false, false
local function ended() return redis.call('SCARD', succeeded) + redis.call('HLEN', broken) + redis.call('HLEN', skipped) end
for i = 6, #ARGV, 2 do
  local id, word = ARGV[i], ARGV[i + 1]
  for _, key in ipairs(from[word] or {}) do
    local queue = redis.call('HGET', key, id)
    if queue then
      redis.call('HDEL', key, id)
      if into[word] then redis.call('HSET', into[word], id, queue) else redis.call('SADD', succeeded, id) end
      if word == 'failed' then
        fresh = true
        redis.call('HSETNX', plan, 'failed_ms', at)
      elseif word == 'pending' then
        again, fresh = true, false
        if redis.call('HEXISTS', plan, 'told:catch') == 1 then redis.call('HDEL', plan, 'told:catch', 'failed_ms') end
        local far = tonumber(redis.call('HGET', plan, 'told:progress') or 0)
        redis.call('HSET', plan, 'told:progress', string.format('%.0f', math.min(far, ended())))
      end
    end
  end
end
if again then
  redis.call('HDEL', plan, 'finished_ms', 'cancelled_ms', 'told:resumed', 'told:cancel', 'told:finally', 'told:stopped')
  redis.call('HINCRBY', plan, 'round', 1)
end
if seal or cancel then redis.call('HSETNX', plan, 'sealed_ms', at) end
if cancel then redis.call('HDEL', plan, 'told:cancel') end
local left, bad, out = redis.call('HLEN', pending), redis.call('HLEN', broken), redis.call('HLEN', skipped)
local good = redis.call('SCARD', succeeded)
local is, names = {}, {
  'allow', 'sealed_ms', 'cancelled_ms', 'finished_ms', 'created_ms', 'failed_ms', 'told:resumed', 'told:progress',
  'told:cancel', 'told:catch', 'told:finally', 'told:then', 'told:stopped', 'told:onward', 'round',
}
local found = redis.call('HMGET', plan, unpack(names))
for n, name in ipairs(names) do is[name] = found[n] end
local function set(name) is[name] = at; redis.call('HSET', plan, name, at) end
if not is.cancelled_ms and not is.finished_ms and (cancel or (fresh and is.allow ~= '1')) then set('cancelled_ms') end
if is.sealed_ms and left == 0 and not is.finished_ms then set('finished_ms') end
for _, key in ipairs(KEYS) do
  if is.finished_ms then redis.call('PEXPIRE', key, bad + out > 0 and keep_broken or keep) else redis.call('PERSIST', key) end
end

local reply = { 1, text, left, good, bad, out, is.round or 0, is.created_ms or '', is.cancelled_ms or '', is.finished_ms or '' }
local over, well = is.finished_ms, bad + out == 0
local function due(name, when) if when and not is['told:' .. name] then reply[#reply + 1] = name end end
due('resumed', tonumber(is.round or 0) > 0)
if good + bad + out > tonumber(is['told:progress'] or 0) then reply[#reply + 1] = 'progress' end
due('cancel', is.cancelled_ms and is.sealed_ms and left > 0)
due('catch', is.failed_ms)
due('finally', over)
due('then', over and well)
due('onward', over and (well or (is.allow == '1' and not is.cancelled_ms)))
due('stopped', over and not well and (is.allow ~= '1' or is.cancelled_ms))
return reply
