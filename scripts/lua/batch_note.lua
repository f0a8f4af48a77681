-- batch_note: write down what became of a batch's members, and say what is to be sent because of it.
--
-- moves    nothing
-- KEYS[1]  plan        hash    what the batch is and what was told of it
-- KEYS[2]  pending     hash    member -> its queue ('' = a batch), and how often it was retried by hand, if ever
-- KEYS[3]  succeeded   set     members
-- KEYS[4]  broken      hash    member that failed -> as in pending
-- KEYS[5]  skipped     hash    member that will not run -> as in pending
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2]  seal        0|1     1 = all members it begins with are known and on their way
-- ARGV[3]  cancel      0|1     1 = no more of it shall run
-- ARGV[4]  keep_ms     int     how long a finished batch is kept
-- ARGV[5]  keep_broken_ms int  the same, when members failed
-- ARGV[6+] member      4 each  id, word (done, failed, skipped or pending: it runs again; `joined` and a queue: it is a
--                              member from now on), how often it was retried, and how often the batch had been
--                              cancelled by then
-- returns  {0} for a batch that is not there; else {1, plan, pending, succeeded, broken, skipped, how often it was taken
--          up again, created_ms, cancelled_ms or '', finished_ms or '', how often it was cancelled, the round of the
--          failure that `catch` is for, then what is due and has not been told: resumed (it was taken up again),
--          progress, cancel (what waits), catch, finally, then, stopped, onward}
-- cost     O(members); at most 500 a call
--
-- Why by membership and not by counting down: a note that comes twice, or late, must not count twice.
-- Why a note says how often its member was retried: what happened before a retry says nothing after it, and what is
-- heard from after a retry that nobody told of tells of that retry too. So notes may come twice, late, and out of order.
-- Why it says what is due again and again until batch_told: whoever was to send it may have died.
-- Why a failure cancels when it is written down and not for as long as it stands: members that failed are retried one
-- by one, and those that are still to come must not cancel those that wait already. For the same reason `catch` is due
-- when there was a failure since it was told last, and not when there is one.
-- Why cancels are counted: a retry lifts those that its caller knew of, and no other.
-- Why links that a member put into its chain join with the note of its end: they come into being in that step, and the
-- batch must not finish before them. It takes them however it stands: what is cancelled of it is cancelled then.
-- Why a cancel seals, with the time 0: a producer that died among its members leaves a batch that could not finish
-- otherwise. Should a retry lift the cancel, that producer may still go on.
-- Why what waits is only cancelled once it is sealed: before, a member may be known that is not in its queue yet.
-- Why one that allows failures, and with which its chain went on, neither resumes nor stops that: what comes behind it
-- is on its way by then, and has ends of its own.
-- Why only a change sets the time it is kept: a look must not begin it anew.
-- Why it begins with HDEL: a server at its memory limit lets a script go on that starts with it, so a full one drains.

local plan, pending, succeeded, broken, skipped = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now, seal, cancel, keep, keep_broken = tonumber(ARGV[1]), ARGV[2] == '1', ARGV[3] == '1', ARGV[4], ARGV[5]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)
for _, key in ipairs({ pending, broken, skipped }) do redis.call('HLEN', key) end; redis.call('SCARD', succeeded)
local is, names = {}, { 'plan', 'allow', 'sealed_ms', 'cancelled_ms', 'finished_ms', 'created_ms', 'failed_ms', 'failed_round',
  'cancels', 'round', 'told:progress', 'told:cancel', 'told:catch', 'told:onward' }
for n, value in ipairs(redis.call('HMGET', plan, unpack(names))) do
  if n == 1 or value and #value <= 15 and string.match(value, '^%d+$') then is[names[n]] = value end end
if not is.plan then return { 0 } end

redis.call('HDEL', plan, '')
local function set(name, value) is[name] = value; redis.call('HSET', plan, name, value) end
local function drop(...) for _, name in ipairs({ ... }) do is[name] = nil; redis.call('HDEL', plan, name) end end
local function count(name) set(name, string.format('%.0f', tonumber(is[name] or 0) + 1)) end
local from = { failed = { [pending] = 1, [skipped] = 1 }, skipped = { [pending] = 1 }, done = { [pending] = 1, [broken] = 1, [skipped] = 1 } }
local into, again, changed = { failed = broken, skipped = skipped }, false, false
local function move(id, source, target, value)
  redis.call('HDEL', source, id)
  if target then redis.call('HSET', target, id, value) else redis.call('SADD', succeeded, id) end
  changed = true
end
local function resume(spared)
  if not again then
    count('round')
    if is['told:catch'] then drop('told:catch', 'failed_ms', 'failed_round') end
    drop('finished_ms', 'told:resumed', 'told:finally', 'told:stopped')
  end
  if spared >= tonumber(is.cancels or 0) then drop('cancelled_ms') else drop('told:cancel') end
  local far = redis.call('SCARD', succeeded) + redis.call('HLEN', broken) + redis.call('HLEN', skipped)
  if tonumber(is['told:progress'] or 0) > far then set('told:progress', string.format('%.0f', far)) end
  again = true
end
for i = 6, #ARGV, 4 do
  local id, word, retried, spared = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local where, value, queue = nil, nil, string.match(word, '^joined (.*)$')
  for _, key in ipairs({ pending, broken, skipped }) do if not value then where, value = key, redis.call('HGET', key, id) end end
  if queue and not value and redis.call('SISMEMBER', succeeded, id) == 0 then
    move(id, pending, pending, retried > 0 and queue .. ' ' .. ARGV[i + 2] or queue); drop('told:cancel')
  end
  local known = value and tonumber(string.match(value, ' (%d+)$') or 0)
  if known and retried > known then
    value = string.match(value, '^[^ ]*') .. ' ' .. ARGV[i + 2]
    move(id, where, pending, value)
    resume(spared)
    where, known = pending, retried
  end
  if retried == known and (from[word] or {})[where] then
    move(id, where, into[word], value)
    if word == 'failed' then
      if not is.failed_ms then set('failed_ms', at); set('failed_round', is.round or '0') end
      if is.allow ~= '1' and not is.cancelled_ms and not is.finished_ms then set('cancelled_ms', at); count('cancels') end
    end
  end
end
if seal and (is.sealed_ms or '0') == '0' or cancel and not is.sealed_ms then set('sealed_ms', seal and at or '0') end
if cancel then count('cancels') end
if cancel and not is.cancelled_ms and not is.finished_ms then set('cancelled_ms', at) end
local left, bad, out = redis.call('HLEN', pending), redis.call('HLEN', broken), redis.call('HLEN', skipped)
local good, fresh = redis.call('SCARD', succeeded), is.sealed_ms and left == 0 and not is.finished_ms
if fresh then set('finished_ms', at) end
local rest = is.finished_ms and math.max(1, tonumber(bad + out > 0 and keep_broken or keep) + is.finished_ms - now)
for _, key in ipairs((changed or fresh) and KEYS or {}) do
  if rest then redis.call('PEXPIRE', key, string.format('%.0f', rest)) elseif again then redis.call('PERSIST', key) end
end

local reply = { 1, is.plan, left, good, bad, out, is.round or 0, is.created_ms or '', is.cancelled_ms or '', is.finished_ms or '',
  is.cancels or 0, is.failed_round or 0 }
local well, over, cancels = bad + out == 0, is.finished_ms, tonumber(is.cancels or 0)
local function due(name, when) if when and redis.call('HEXISTS', plan, 'told:' .. name) == 0 then reply[#reply + 1] = name end end
due('resumed', tonumber(is.round or 0) > 0 and not is['told:onward'])
if good + bad + out > tonumber(is['told:progress'] or 0) then reply[#reply + 1] = 'progress' end
if is.cancelled_ms and is.sealed_ms and left > 0 and tonumber(is['told:cancel'] or 0) < cancels then reply[#reply + 1] = 'cancel' end
due('catch', is.failed_ms)
due('finally', over)
due('then', over and well)
due('onward', over and (well or (is.allow == '1' and not is.cancelled_ms)))
due('stopped', over and not well and not is['told:onward'] and (is.allow ~= '1' or is.cancelled_ms))
return reply
