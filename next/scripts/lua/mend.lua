-- mend: repair some ids, so that each has one place, and whatever has a place has a payload.
--
-- MOVES  (no place) -> scheduled, due now, or -> completed when a result is there; reserved -> ready under a new entry
--        when the old one is missing in the stream; a place without a payload: scheduled -> failed, ready -> failed,
--        reserved -> failed, unless the entry still carries it
--
-- KEYS   jobs        hash    id -> envelope
-- KEYS   scheduled   zset    id -> due, epoch ms
-- KEYS   stream      stream  group `delayq`
-- KEYS   entries     hash    id -> entry id, while the job is in the stream
-- KEYS   recoveries  hash    id -> times its worker vanished
-- KEYS   failed      zset    id -> failed at, epoch ms
-- KEYS   errors      hash    id -> failure, JSON
-- KEYS   completed   zset    id -> forget at, epoch ms
-- KEYS   results     hash    id -> result, JSON
-- KEYS   cancel      hash    id -> asked to stop at, epoch ms
-- KEYS   unique      hash    digest -> id of its owner
-- KEYS   locks       hash    id -> digest
-- KEYS   progress    hash    id -> last progress report, JSON
--
-- ARGV   now         clock
-- ARGV   queue       text    its name, for the stub of a lost payload
-- ARGV   lost        text    the failure for a lost payload: JSON without its closing brace
-- ARGV*  given       {id}
--
-- RETURNS  a word for each id that was looked at: fine, restored, appended, scheduled, completed, single (extra places
--          dropped), lost or dropped (only rows beside a job were left). A shorter list means: call again with the rest
-- COST     O(ids * log n) and their bytes; 250 ids and 1 MB at most, but one id at least
--
-- It is called only when the two sums disagree. No script can cause that: the data was damaged. Call it after
-- outside_acks went through the whole stream and bury through what it found: bury gives an entry whose row was lost
-- back to its job; here that job would have no place and be delivered a second time.

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

-- Appends a job whose entry is gone. nil without a stream: schedule, promote and tidy make one, together with its
-- group.
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

-- Repairs the entry of an id. Returns its place (nil when it is not in the stream), a word, whether its payload is
-- known now, and the bytes read.
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

  -- The row names an entry that is missing, is another job's, or has no payload.
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

-- Of several places the one nearest to a worker stays: a worker may be at work on it.
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

-- Writes a stub for a lost payload. A failed or completed job stays where it is: its failure or result is worth
-- showing.
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

-- A job that waits or runs keeps its unique key, and takes it again when it is free.
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

-- Drops the rows beside a job that do not belong to its place.
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
