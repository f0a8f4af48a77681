-- batch_open: Create a batch, or add members to a batch. A member is one job or one chain, and has an id. The
-- script only stores the members. The caller then sends their jobs.
--
-- MOVES  nothing
--
-- KEYS   plan       hash    fields plan, allow, created_ms, total, sealed, cancelled_ms, finished_ms
-- KEYS   pending    hash    id -> `<queue> <links>`, for members that have not ended: the queue of the present job, and
--                           the number of links from this job on; `batch_note` adds the job id of a member that was
--                           sent
-- KEYS   succeeded  set     ids of members that have succeeded
-- KEYS   broken     hash    id -> `<queue> <job id>`, the job that failed
-- KEYS   skipped    hash    id -> 1, for members that were cancelled or stopped
--
-- ARGV   now        clock   time of creation: epoch ms, for tests; '' = server clock
-- ARGV   new_plan   text    plan of the batch, which no script reads; '' = add members to an existing batch
-- ARGV   allow      int     1 = the first failure does not cancel the batch; else 0
-- ARGV   seal       int     1 = this is the last call of the dispatch, so that the batch can finish; else 0
-- ARGV*  members    {id place}
--          id     member id
--          place  `<queue> <links>`, stored in `pending`: the queue of the first job, and the number of links
--
-- RETURNS  One flat list: answer, total, cancelled_ms, then a text for each row.
--            answer        opened     the members are stored, unless the batch was cancelled or has finished
--                          unknown    nothing changed: new_plan is '', and the batch does not exist
--                          finished   nothing changed: new_plan is '', and the batch has finished
--                          cancelled  nothing changed: new_plan is '', and the batch was cancelled
--            total         number of members after this call
--            cancelled_ms  time at which the batch was cancelled, epoch ms; '' = not cancelled
--            row           1 = the member is pending, and is not known to have been sent
--                          2 = the member is pending, and `batch_note` has recorded that it was sent
--                          0 = the member has ended or is unknown
-- COST     O(rows); send at most 500 rows
--
-- If the batch exists, its first plan, `allow` and `created_ms` stay, and the script does not change known members. So
-- an interrupted dispatch can be repeated: the second dispatch sends the jobs of the members whose rows are 1. A batch
-- that was cancelled or has finished gets no more members. This script never finishes a batch. If all members have
-- ended before the batch is sealed, the next call of `batch_note` finishes the batch.

-- include: column
-- include: member_places

-- 1. Look at the batch and find new members.

local is_new = redis.call('HEXISTS', plan, 'plan') == 0
local fields = redis.call('HMGET', plan, 'total', 'sealed', 'cancelled_ms', 'finished_ms')
local total = tonumber(fields[1] or 0) or 0
local is_sealed = fields[2]
local cancelled_ms = fields[3]
local finished_ms = fields[4]

local answer = 'opened'
if new_plan == '' then
  if is_new then
    answer = 'unknown'
  elseif finished_ms then
    answer = 'finished'
  elseif cancelled_ms then
    answer = 'cancelled'
  end
end

local places = member_places(column(members, 'id'), pending, succeeded, broken, skipped)
local added = {} -- id, place, id, place …
if answer == 'opened' and not cancelled_ms and not finished_ms then
  for _, row in ipairs(members) do
    if not places[row.id] then
      places[row.id] = pending
      added[#added + 1] = row.id
      added[#added + 1] = row.place
    end
  end
end

-- 2. Store the new members. Each of these commands needs memory, so a full server refuses the call before it writes
-- anything.

if answer == 'opened' and is_new then
  local created_ms = string.format('%.0f', now)
  redis.call('HSET', plan, 'plan', new_plan, 'allow', allow, 'created_ms', created_ms, 'total', 0)
end
if #added > 0 then
  total = total + #added / 2
  redis.call('HSET', pending, unpack(added))
  redis.call('HSET', plan, 'total', string.format('%.0f', total))
end
if answer == 'opened' and seal == 1 and not is_sealed then
  redis.call('HSET', plan, 'sealed', '1')
end

local reply = { answer, string.format('%.0f', total), cancelled_ms or '' }
local texts = #members > 0 and redis.call('HMGET', pending, unpack(column(members, 'id'))) or {}
for _, text in ipairs(texts) do
  reply[#reply + 1] = not text and '0' or string.find(text, '^%S+ %S+ ') and '2' or '1'
end
return reply
