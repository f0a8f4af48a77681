-- batch_note: write down what became of a batch's members, and say what must be sent because of it.
--
-- moves    nothing
-- KEYS[1]  plan        hash    what the batch is, and what was told of it
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
-- returns  {0} when there is no such batch; else {1, plan, pending, succeeded, broken, skipped, how often it was
--          resumed, created_ms, cancelled_ms or '', finished_ms or '', how often it was cancelled, the round of the
--          failure that `catch` is for, then what is due and was not told: resumed, progress, cancel (what waits),
--          catch, finally, then, stopped, onward}
-- cost     O(members); at most 500 a call
--
-- Notes may come twice, late and out of order. So members are kept by name and not counted down, and a note says how
-- often its member was retried: what happened before a retry says nothing after it. What is due is said again and again
-- until batch_told, because the process that was to send it may have died.

local plan, pending, succeeded, broken, skipped = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now = tonumber(ARGV[1])
local seal = ARGV[2] == '1'
local cancel = ARGV[3] == '1'
local keep = ARGV[4]
local keep_broken = ARGV[5]
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)
for _, key in ipairs({ pending, broken, skipped }) do
  redis.call('HLEN', key)
end
redis.call('SCARD', succeeded)

-- `state` holds the fields of `plan`; `told:…` are what was sent.
local state = {}
local names = {
  'plan',
  'allow',
  'sealed_ms',
  'cancelled_ms',
  'finished_ms',
  'created_ms',
  'failed_ms',
  'failed_round',
  'cancels',
  'round',
  'told:progress',
  'told:cancel',
  'told:catch',
  'told:onward',
}
for n, value in ipairs(redis.call('HMGET', plan, unpack(names))) do
  if n == 1 or value and #value <= 15 and string.match(value, '^%d+$') then
    state[names[n]] = value
  end
end
if not state.plan then
  return { 0 }
end

-- A server at its memory limit lets a script go on that starts with HDEL, so a full one drains.
redis.call('HDEL', plan, '')

local function set_field(name, value)
  state[name] = value
  redis.call('HSET', plan, name, value)
end

local function drop_fields(...)
  for _, name in ipairs({ ... }) do
    state[name] = nil
    redis.call('HDEL', plan, name)
  end
end

local function count_up(name)
  set_field(name, string.format('%.0f', tonumber(state[name] or 0) + 1))
end

-- From where a word moves a member, and to where. `succeeded` is a set, and stands for no hash here.
local from = {
  ['failed'] = { [pending] = 1, [skipped] = 1 },
  ['skipped'] = { [pending] = 1 },
  ['done'] = { [pending] = 1, [broken] = 1, [skipped] = 1 },
}
local into = { ['failed'] = broken, ['skipped'] = skipped }
local is_resumed = false
local is_changed = false

local function move_member(id, source, target, value)
  redis.call('HDEL', source, id)
  if target then
    redis.call('HSET', target, id, value)
  else
    redis.call('SADD', succeeded, id)
  end
  is_changed = true
end

-- A member was retried: the batch is taken up again. `spared`: how many cancels the retry's caller knew of. It lifts
-- those and no other.
local function resume_batch(spared)
  if not is_resumed then
    count_up('round')
    if state['told:catch'] then
      drop_fields('told:catch', 'failed_ms', 'failed_round')
    end
    drop_fields('finished_ms', 'told:resumed', 'told:finally', 'told:stopped')
  end
  if spared >= tonumber(state.cancels or 0) then
    drop_fields('cancelled_ms')
  else
    drop_fields('told:cancel')
  end
  local ended = redis.call('SCARD', succeeded) + redis.call('HLEN', broken) + redis.call('HLEN', skipped)
  if tonumber(state['told:progress'] or 0) > ended then
    set_field('told:progress', string.format('%.0f', ended))
  end
  is_resumed = true
end

for i = 6, #ARGV, 4 do
  local id = ARGV[i]
  local word = ARGV[i + 1]
  local retried = tonumber(ARGV[i + 2])
  local spared = tonumber(ARGV[i + 3])
  local where = nil
  local value = nil
  for _, key in ipairs({ pending, broken, skipped }) do
    if not value then
      where = key
      value = redis.call('HGET', key, id)
    end
  end
  -- Links that a member put into its chain join with the note of its end, so the batch does not finish before them.
  -- They join whatever the state of the batch: when it is cancelled, they are cancelled then.
  local queue = string.match(word, '^joined (.*)$')
  if queue and not value and redis.call('SISMEMBER', succeeded, id) == 0 then
    move_member(id, pending, pending, retried > 0 and queue .. ' ' .. ARGV[i + 2] or queue)
    drop_fields('told:cancel')
  end
  -- A note after a retry that was not reported reports that retry too.
  local known = value and tonumber(string.match(value, ' (%d+)$') or 0)
  if known and retried > known then
    value = string.match(value, '^[^ ]*') .. ' ' .. ARGV[i + 2]
    move_member(id, where, pending, value)
    resume_batch(spared)
    where = pending
    known = retried
  end
  if retried == known and (from[word] or {})[where] then
    move_member(id, where, into[word], value)
    -- A failure counts when it is written down, not for as long as it stands. Failed members are retried one by one;
    -- those still to come must neither cancel what waits already, nor call for a second `catch`.
    if word == 'failed' then
      if not state.failed_ms then
        set_field('failed_ms', at)
        set_field('failed_round', state.round or '0')
      end
      if state.allow ~= '1' and not state.cancelled_ms and not state.finished_ms then
        set_field('cancelled_ms', at)
        count_up('cancels')
      end
    end
  end
end

-- A cancel seals too, with the time 0: a producer that died among its members leaves a batch that could not finish
-- otherwise. When a retry lifts the cancel, that producer may still go on.
if seal and (state.sealed_ms or '0') == '0' or cancel and not state.sealed_ms then
  set_field('sealed_ms', seal and at or '0')
end
if cancel then
  count_up('cancels')
end
if cancel and not state.cancelled_ms and not state.finished_ms then
  set_field('cancelled_ms', at)
end

local pending_count = redis.call('HLEN', pending)
local broken_count = redis.call('HLEN', broken)
local skipped_count = redis.call('HLEN', skipped)
local succeeded_count = redis.call('SCARD', succeeded)
local is_well = broken_count + skipped_count == 0
local finishes = state.sealed_ms and pending_count == 0 and not state.finished_ms
if finishes then
  set_field('finished_ms', at)
end

-- Only a change sets how long the batch is kept: a look must not start that time anew.
local rest = nil
if state.finished_ms then
  rest = math.max(1, tonumber(is_well and keep or keep_broken) + state.finished_ms - now)
end
for _, key in ipairs((is_changed or finishes) and KEYS or {}) do
  if rest then
    redis.call('PEXPIRE', key, string.format('%.0f', rest))
  elseif is_resumed then
    redis.call('PERSIST', key)
  end
end

local reply = {
  1,
  state.plan,
  pending_count,
  succeeded_count,
  broken_count,
  skipped_count,
  state.round or 0,
  state.created_ms or '',
  state.cancelled_ms or '',
  state.finished_ms or '',
  state.cancels or 0,
  state.failed_round or 0,
}

-- Adds what is due, unless it was told.
local function add_due(name, is_due)
  if is_due and redis.call('HEXISTS', plan, 'told:' .. name) == 0 then
    reply[#reply + 1] = name
  end
end

local is_over = state.finished_ms
local went_on = state['told:onward'] -- the chain behind it went on, and neither resumes nor stops with it any more
add_due('resumed', tonumber(state.round or 0) > 0 and not went_on)
if succeeded_count + broken_count + skipped_count > tonumber(state['told:progress'] or 0) then
  reply[#reply + 1] = 'progress'
end
-- What waits is cancelled only once the batch is sealed: before, a member may be known that is not in its queue yet.
local is_cancelled = state.cancelled_ms and state.sealed_ms and pending_count > 0
if is_cancelled and tonumber(state['told:cancel'] or 0) < tonumber(state.cancels or 0) then
  reply[#reply + 1] = 'cancel'
end
add_due('catch', state.failed_ms)
add_due('finally', is_over)
add_due('then', is_over and is_well)
add_due('onward', is_over and (is_well or (state.allow == '1' and not state.cancelled_ms)))
add_due('stopped', is_over and not is_well and not went_on and (state.allow ~= '1' or state.cancelled_ms))
return reply
