-- batch_note: Record the progress of members of a batch, or cancel the batch, and return the duties that are due, such
-- as sending a callback.
--
-- MOVES  nothing
--
-- KEYS   plan            hash    fields plan, allow, total, sealed, cancelled_ms, finished_ms, failed_once, walk, and
--                                told_before, told_catch, told_then, told_finally
-- KEYS   pending         hash    id -> `<queue> <links>`, for members that have not ended; after the member was sent:
--                                `<queue> <links> <job id>`. These are the queue of its present job, the number of
--                                links from this job on, and the id of this job.
-- KEYS   succeeded       set     ids of members that have succeeded
-- KEYS   broken          hash    id -> `<queue> <job id>`, the job that failed
-- KEYS   skipped         hash    id -> 1, for members that were cancelled or stopped
--
-- ARGV   now             clock   epoch ms, for tests; '' = server clock
-- ARGV   cancel          int     1 = seal and cancel the batch first, unless it has finished; else 0
-- ARGV   keep_ms         int     how long a finished batch is kept after this call, in ms
-- ARGV   keep_broken_ms  int     the same for a finished batch with a member in `broken`
-- ARGV*  notes           {id word job}
--          id    member id; with the word `told`: name of a duty
--          word  one of these words:
--                  sent     the first job of the member is stored. If the member is pending and its text has no job
--                           id, the script adds the id of the member to the text, as the job id
--                  done     the member has succeeded: pending, broken or skipped -> succeeded
--                  failed   the member has failed: pending or skipped -> broken, or a new job in broken
--                  skipped  the member was cancelled or stopped: pending -> skipped
--                  next     a job of a chain is done, and the caller wants to send the next job. If the member is
--                           pending, `job` becomes its text in `pending`, so that a cancel finds the next job. If the
--                           batch was cancelled, the chain stops: pending -> skipped
--                  told     the caller has performed the duty, and the script stops returning it
--          job   with the word `failed`: `<queue> <job id>` of the job that failed; with the word `next`: the new text
--                in `pending`, or '' to keep the old text; with any other word: ''
--
-- RETURNS  {state, plan, duties, answers, cancelled_ms}, or {unknown} if the batch does not exist
--            state         running or finished
--            plan          plan of the batch; '' if no duty is due
--            duties        list of the due duties, in this order:
--                            before   the batch is sealed
--                            catch    a member has failed
--                            cancel   the batch was cancelled, so that the jobs of pending members must be cancelled
--                            then     the batch is sealed, and all its members have succeeded
--                            finally  the batch has finished
--            answers       list with a number for each row:
--                            1  the row changed something; with the word `next`: send the next job
--                            0  nothing changed, or the member is unknown; with the word `next`: do not send the next
--                               job
--            cancelled_ms  time at which the batch was cancelled, epoch ms; '' = not cancelled
-- COST     O(rows); send at most 500 rows
--
-- Every call returns a due duty until a row with the word `told` names this duty, so that no duty is lost in a crash. A
-- second call with `cancel` makes the duty `cancel` due again. If `allow` is 0, the first failure cancels the batch
-- too, but does not seal the batch. A batch finishes as soon as it is sealed and has no pending member, and stays
-- finished, even if a failed member succeeds later. Each call for a finished batch sets the time to live of all keys of
-- the batch. After a repeated call, the keys are the same. The answer for a row is 0 if the first call has already made
-- the change. With the word `next`, however, the repeated call gives the same answer as the first one.

-- include: may_write
-- include: column
-- include: member_places

-- 1. Check the arguments, and look at the batch.

local is_word = { sent = true, done = true, failed = true, skipped = true, next = true, told = true }
local is_duty = { before = true, catch = true, cancel = true, ['then'] = true, finally = true }
for _, row in ipairs(notes) do
  if not is_word[row.word] then
    return redis.error_reply('ERR batch_note: word must be sent, done, failed, skipped, next or told, not ' .. row.word)
  end
end
for _, kept_ms in ipairs({ keep_ms or 0, keep_broken_ms or 0 }) do
  if not (kept_ms > 0 and kept_ms < 2 ^ 53) then
    return redis.error_reply('ERR batch_note: keep_ms and keep_broken_ms must be numbers of milliseconds above 0')
  end
end
if redis.call('HEXISTS', plan, 'plan') == 0 then
  return { 'unknown' }
end

local now_text = string.format('%.0f', now)
local fields = redis.call('HMGET', plan, 'allow', 'cancelled_ms', 'finished_ms')
local allow = fields[1] == '1'
local cancelled_ms = fields[2]
local finished_ms = fields[3]
local places = member_places(column(notes, 'id'), pending, succeeded, broken, skipped)

local function cancel_batch()
  cancelled_ms = cancelled_ms or now_text
  redis.call('HSET', plan, 'cancelled_ms', cancelled_ms, 'walk', '1')
end

-- Each function handles one word, and returns true if the answer for the row is 1.
local handlers = {}

function handlers.done(id)
  local place = places[id]
  if not place or place == succeeded then
    return false
  end
  redis.call('HDEL', place, id)
  redis.call('SADD', succeeded, id)
  places[id] = succeeded
  return true
end

function handlers.failed(id, job)
  local place = places[id]
  if not place or place == succeeded or redis.call('HGET', broken, id) == job then
    return false
  end
  if place ~= broken then
    redis.call('HDEL', place, id)
  end
  redis.call('HSET', broken, id, job)
  redis.call('HSET', plan, 'failed_once', '1')
  places[id] = broken
  if not allow and not cancelled_ms then
    cancel_batch()
  end
  return true
end

function handlers.skipped(id)
  if places[id] ~= pending then
    return false
  end
  redis.call('HDEL', pending, id)
  redis.call('HSET', skipped, id, '1')
  places[id] = skipped
  return true
end

function handlers.sent(id)
  local text = places[id] == pending and redis.call('HGET', pending, id)
  if not text or not string.find(text, '^%S+ %S+$') then
    return false
  end
  redis.call('HSET', pending, id, text .. ' ' .. id)
  return true
end

-- A chain that this function has stopped stays stopped if the call is repeated. If a row with the word
-- `next` names a failed member of a cancelled batch, the failed job of this member was retried and has succeeded, so
-- the chain goes on.
function handlers.next(id, job)
  if cancelled_ms then
    handlers.skipped(id)
    return places[id] == succeeded or places[id] == broken
  end
  if places[id] == pending and job ~= '' then
    redis.call('HSET', pending, id, job)
  end
  return places[id] ~= nil
end

function handlers.told(duty)
  if duty == 'cancel' then
    return redis.call('HDEL', plan, 'walk') == 1
  end
  return is_duty[duty] and redis.call('HSETNX', plan, 'told_' .. duty, '1') == 1
end

-- 2. Cancel the batch, record the rows, and finish the batch. A full server accepts all of this.

may_write(plan)
if cancel == 1 and not finished_ms then
  redis.call('HSET', plan, 'sealed', '1')
  cancel_batch()
end
local answers = {}
for n, row in ipairs(notes) do
  answers[n] = handlers[row.word](row.id, row.job) and 1 or 0
end

local is_sealed = redis.call('HEXISTS', plan, 'sealed') == 1
if is_sealed and not finished_ms and redis.call('HLEN', pending) == 0 then
  finished_ms = now_text
  redis.call('HSET', plan, 'finished_ms', finished_ms)
end
if finished_ms then
  local kept_ms = redis.call('HLEN', broken) > 0 and keep_broken_ms or keep_ms
  for _, key in ipairs({ plan, pending, succeeded, broken, skipped }) do
    redis.call('PEXPIRE', key, string.format('%.0f', kept_ms))
  end
end

-- 3. Find the duties that are due.

local told = redis.call('HMGET', plan, 'told_before', 'told_catch', 'told_then', 'told_finally')
local flags = redis.call('HMGET', plan, 'total', 'failed_once', 'walk')
local total = tonumber(flags[1] or 0) or 0
local has_succeeded = is_sealed and total > 0 and redis.call('SCARD', succeeded) == total

local duties = {}
local function add_duty(duty, is_due)
  if is_due then
    duties[#duties + 1] = duty
  end
end
add_duty('before', is_sealed and not told[1])
add_duty('catch', flags[2] and not told[2])
add_duty('cancel', flags[3])
add_duty('then', has_succeeded and not told[3])
add_duty('finally', finished_ms and not told[4])

local plan_text = #duties > 0 and redis.call('HGET', plan, 'plan') or ''
local state = finished_ms and 'finished' or 'running'
return { state, plan_text, duties, answers, cancelled_ms or '' }
