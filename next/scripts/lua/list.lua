-- list: Return one page of the jobs in one state, ordered by time or by entry id.
--
-- MOVES  nothing
--
-- KEYS   set         zset    the key `scheduled`, `failed` or `completed`; not read if `state` is `ready` or `reserved`
-- KEYS   jobs        hash    id -> envelope JSON
-- KEYS   stream      stream  entries of ready and reserved jobs; consumer group `delayq`
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   meta        hash    field delivered
--
-- ARGV   state       text    scheduled | ready | reserved | failed | completed
-- ARGV   after       text    cursor from the page before; '' = first page
-- ARGV   limit       int     maximum number of jobs, 1..500
-- ARGV   newest      int     1 = latest first; 0 = earliest first
--
-- RETURNS  One flat list: cursor, then id, time, envelope and entry for each job.
--            cursor    `after` for the next page; '' = this was the last page. A page with a cursor may have fewer than
--                      `limit` jobs, or none.
--            id        job id
--            time      failed: time of failure; completed: time to forget the job; otherwise due time, or '' if the
--                      entry of a ready or reserved job has none; all epoch ms
--            envelope  JSON, or '' if it was lost
--            entry     stream entry id, for ready and reserved jobs; otherwise ''
-- COST     O(limit * log n), where n is the number of jobs in the state; reads up to 1 MB of envelopes, but at least
--          one envelope

-- include: last_delivered

local max_bytes = 1000000
local max_chunk = 16
local reply = { '' }
local bytes = 0

-- Adds a job to the reply. Returns false if the page is full.
local function add_job(id, at, envelope, entry, cursor)
  reply[#reply + 1] = id
  reply[#reply + 1] = at
  reply[#reply + 1] = envelope or ''
  reply[#reply + 1] = entry
  reply[1] = cursor
  return (#reply - 1) / 4 < limit and bytes < max_bytes
end

-- 1. List a sorted set. The cursor is 'score id'.

-- Returns true if the id `one` comes after the id `other` in a sorted set, which compares bytes. Lua's `<` is not used,
-- because its result depends on the locale of the server.
local function is_behind(one, other)
  for n = 1, math.min(#one, #other) do
    local a = string.byte(one, n)
    local b = string.byte(other, n)
    if a ~= b then
      return a > b
    end
  end
  return #one > #other
end

-- Returns the number of jobs before the cursor in ascending order, and 1 if the job of the cursor is still there, or 0
-- if it is gone. If the job is gone, a binary search among equal scores finds the rank that the job had. The cursor is
-- not a rank, because ranks change when jobs are added or removed.
local function find_rank(score, id)
  local rank = redis.call('ZRANK', set, id)
  if rank and tonumber(redis.call('ZSCORE', set, id)) == tonumber(score) then
    return rank, 1
  end
  local low = redis.call('ZCOUNT', set, '-inf', '(' .. score)
  local high = redis.call('ZCOUNT', set, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_behind(redis.call('ZRANGE', set, middle, middle)[1], id) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low, 0
end

if state ~= 'ready' and state ~= 'reserved' then
  local score, id = string.match(after, '^(%S+) (.+)$')
  local rank = 0
  if score then
    local before, found = find_rank(score, id)
    rank = newest == 1 and redis.call('ZCARD', set) - before or before + found
  end
  while true do
    local page
    if newest == 1 then
      page = redis.call('ZREVRANGE', set, rank, rank + max_chunk - 1, 'WITHSCORES')
    else
      page = redis.call('ZRANGE', set, rank, rank + max_chunk - 1, 'WITHSCORES')
    end
    for n = 1, #page, 2 do
      local envelope = redis.call('HGET', jobs, page[n]) or ''
      bytes = bytes + #envelope
      if not add_job(page[n], page[n + 1], envelope, '', page[n + 1] .. ' ' .. page[n]) then
        return reply
      end
    end
    rank = rank + max_chunk
    if #page < 2 * max_chunk then
      break
    end
  end
  reply[1] = ''
  return reply
end

-- 2. List the stream. The cursor is an entry id. Entries up to `last` are reserved, and later entries are ready.

local last = last_delivered(stream, redis.call('HGET', meta, 'delivered'))
if state == 'ready' and not last then
  return reply
end
local low = state == 'ready' and '(' .. last or '-'
local high = state == 'reserved' and last or '+'
if after ~= '' and newest == 1 and (high == '+' or padded(after) <= padded(last)) then
  high = '(' .. after
elseif after ~= '' and newest ~= 1 and (low == '-' or padded(after) > padded(last)) then
  low = '(' .. after
end

-- Entries are read in chunks, which are small if a large entry was seen before.
local largest = 0
local entry = ''
while bytes < max_bytes do
  local chunk = 1
  if largest > 0 then
    chunk = math.max(1, math.min(max_chunk, math.floor((max_bytes - bytes) / largest)))
  end
  local page
  if newest == 1 then
    page = redis.call('XREVRANGE', stream, high, low, 'COUNT', chunk)
  else
    page = redis.call('XRANGE', stream, low, high, 'COUNT', chunk)
  end
  for _, row in ipairs(page) do
    local fields = {}
    local size = 100
    for n = 1, #row[2], 2 do
      fields[row[2][n]] = row[2][n + 1]
      size = size + #row[2][n + 1]
    end
    entry = row[1]
    bytes = bytes + size
    largest = math.max(largest, size)
    local is_owned = fields['id'] and redis.call('HGET', entries, fields['id']) == entry
    if is_owned and not add_job(fields['id'], fields['due'] or '', fields['job'], entry, entry) then
      return reply
    end
  end
  if #page < chunk then
    reply[1] = ''
    return reply
  end
  if newest == 1 then
    high = '(' .. entry
  else
    low = '(' .. entry
  end
end
reply[1] = entry
return reply
