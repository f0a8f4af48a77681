-- mend: Repair the given jobs, so that each job is in exactly one state and has an envelope.
--
-- MOVES  no state -> completed, if the job has a result;
--        no state -> scheduled, due now, if the job has no result;
--        ready or reserved -> ready, under a new entry, if the old entry is missing in the stream;
--        scheduled, ready or reserved -> failed, if the envelope was lost, and the stream entry has no copy
--
-- KEYS   jobs        hash    id -> envelope JSON
-- KEYS   scheduled   zset    id -> due time, epoch ms
-- KEYS   stream      stream  entries of ready and reserved jobs; consumer group `delayq`
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   recoveries  hash    id -> number of times its worker vanished
-- KEYS   failed      zset    id -> time of failure, epoch ms
-- KEYS   errors      hash    id -> failure JSON
-- KEYS   completed   zset    id -> time to forget the job, epoch ms
-- KEYS   results     hash    id -> result JSON
-- KEYS   cancel      hash    id -> time of the stop request, epoch ms
-- KEYS   unique      hash    digest -> id of the job that owns the unique key
-- KEYS   locks       hash    id -> digest of the job's unique key
-- KEYS   progress    hash    id -> last progress report, JSON
--
-- ARGV   now         clock   epoch ms, for tests; '' = server clock
-- ARGV   queue       text    name of the queue, for the stub of a lost envelope
-- ARGV   lost        text    failure JSON for a job whose envelope was lost, without the closing brace of the JSON,
--                            because the script appends members
-- ARGV*  given       {id}
--
-- RETURNS  A list with a word for each id:
--            fine       no repair was needed
--            restored   the envelope was restored from the stream entry
--            appended   the entry was missing, and the job was appended to the stream again
--            scheduled  the job had no state, and is due now
--            completed  the job had a result but no state, and is completed now
--            single     the job was in several states, and is in one now
--            lost       the envelope was lost, and a stub replaces it; the job is failed or stays completed
--            dropped    there is no job with this id; rows for the id in other hashes were deleted
--          The list may be shorter than `given`: call again with the remaining ids.
-- COST     O(ids * log n + bytes); a call handles up to 250 ids and 1 MB of envelopes, but at least one id
--
-- Call the script only if the counts of `tidy` show damaged data. Damage is rare, because no script damages data. First
-- go through the whole stream with `outside_acks` and the scope `all`, and pass the entries with the verdict `garbage`
-- to `bury`. If the row of a job in `entries` was lost, `bury` restores the row. Without this step, `mend` would find
-- this job without a state, and would deliver it a second time.

-- include: read_entry
-- include: append_entry
-- include: history
-- include: lost_stub
-- include: may_write

local max_ids = 250
local max_bytes = 1000000
local now_text = string.format('%.0f', now)
local no_fields = {}
may_write(cancel)

-- Appends a job whose entry is missing. Returns the entry id and the number of bytes. Returns nil without a stream,
-- because only `schedule`, `promote` and `tidy` create a stream together with its group.
local function append_again(id)
  if redis.call('EXISTS', stream) == 0 then
    return nil, 0
  end
  local envelope = redis.call('HGET', jobs, id)
  local times = redis.call('HGET', recoveries, id) or '0'
  local is_stopping = redis.call('HEXISTS', cancel, id) == 1
  local entry = append_entry(stream, id, envelope, now_text, times, is_stopping)
  redis.call('HSET', entries, id, entry)
  redis.call('HDEL', progress, id)
  return entry, #envelope
end

-- Repairs the entry of a job. Returns `entries` if the job is in the stream, else nil; the word for the reply; true if
-- the envelope is known now; and the number of bytes read.
local function repair_entry(id, is_known)
  local entry = redis.call('HGET', entries, id)
  if not entry then
    return nil, 'fine', is_known, 0
  end
  local is_valid = string.match(entry, '^%d+%-%d+$')
  local fields = no_fields
  local bytes = 0
  if is_valid then
    fields, bytes = read_entry(stream, entry)
  end
  local is_found = next(fields) ~= nil
  if fields['id'] == id and (is_known or fields['job']) then
    if not is_known then
      redis.call('HSET', jobs, id, fields['job'])
    end
    return entries, is_known and 'fine' or 'restored', true, bytes
  end

  -- The row in `entries` names an entry that is missing, belongs to another job, or has no envelope.
  if is_valid and (fields['id'] == id or not is_found) then
    redis.call('XACK', stream, 'delayq', entry)
    redis.call('XDEL', stream, entry)
  end
  redis.call('HDEL', entries, id)
  if not is_known then
    return nil, 'lost', false, bytes
  end
  local new_entry, size = append_again(id)
  if not new_entry then
    return nil, 'fine', true, bytes
  end
  return entries, 'appended', true, bytes + size
end

-- Reduces several states of a job to one. If the job has a row in `entries`, the script keeps this row, because a
-- worker may be running the job. Otherwise it keeps the first of `scheduled`, `failed` and `completed`.
local function keep_one_place(id, place, word)
  for _, set in ipairs({ scheduled, failed, completed }) do
    if redis.call('ZSCORE', set, id) then
      if place then
        redis.call('ZREM', set, id)
        word = 'single'
      else
        place = set
      end
    end
  end
  return place, word
end

-- Stores a stub for a lost envelope. A failed or completed job keeps its state, because its failure or result is still
-- useful.
local function write_stub(id, place)
  redis.call('HSET', jobs, id, lost_stub(id, queue))
  if place == completed then
    return completed
  end
  redis.call('ZREM', scheduled, id)
  redis.call('ZADD', failed, 'NX', now_text, id)
  local before = redis.call('HGET', errors, id) or ''
  if place ~= failed or before == '' then
    local record = lost .. ',"at_ms":' .. now_text .. ',"history":[' .. history(before) .. ']}'
    redis.call('HSET', errors, id, record)
  end
  return failed
end

-- Repairs the unique key of a job. A scheduled, ready or reserved job keeps the key, or takes the key back if no other
-- job owns it. Any other job loses the key.
local function repair_lock(id, is_alive)
  local digest = redis.call('HGET', locks, id)
  if not digest then
    return
  end
  if is_alive then
    redis.call('HSETNX', unique, digest, id)
  end
  local is_owner = redis.call('HGET', unique, digest) == id
  if is_owner and not is_alive then
    redis.call('HDEL', unique, digest)
  end
  if not (is_owner and is_alive) then
    redis.call('HDEL', locks, id)
  end
end

-- Deletes rows of a job that do not belong to its state.
local function repair_rows_beside(id, place)
  if place ~= completed then
    redis.call('HDEL', results, id)
  end
  if place ~= entries then
    redis.call('HDEL', cancel, id)
    redis.call('HDEL', progress, id)
  end
  repair_lock(id, place == entries or place == scheduled)
  if not place then
    redis.call('HDEL', recoveries, id)
    redis.call('HDEL', errors, id)
  end
end

local reply = {}
local bytes = 0
for _, row in ipairs(given) do
  if bytes > max_bytes or #reply == max_ids then
    break
  end
  local id = row.id
  local place, word, is_known, size = repair_entry(id, redis.call('HEXISTS', jobs, id) == 1)
  place, word = keep_one_place(id, place, word)
  if not is_known and (place or word == 'lost') then
    place = write_stub(id, place)
    word = 'lost'
  elseif not is_known then
    word = 'dropped'
  elseif not place then
    word = redis.call('HEXISTS', results, id) == 1 and 'completed' or 'scheduled'
    place = word == 'completed' and completed or scheduled
    redis.call('ZADD', place, now_text, id)
  end
  repair_rows_beside(id, place)
  reply[#reply + 1] = word
  bytes = bytes + size
end
return reply
