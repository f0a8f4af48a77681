-- bury: dead-letter stream entries that are no jobs of ours, so that garbage neither blocks a worker nor vanishes.
--
-- moves    (no job) -> failed, under the id `x-<entry id>`; a stray copy of a job that has another place: dropped;
--          an entry whose row was lost: given back to its job, which has no other place, while somebody holds it or
--          nobody was given it yet
-- KEYS[1]  entries     hash    id -> entry id
-- KEYS[2]  stream      stream  group `delayq`
-- KEYS[3]  scheduled   zset    id -> due_ms
-- KEYS[4]  failed      zset    id -> failed at
-- KEYS[5]  completed   zset    id -> forget at
-- KEYS[6]  jobs        hash    id -> envelope; here also: the raw bytes
-- KEYS[7]  errors      hash    id -> failure
-- KEYS[8]  meta        hash
-- ARGV[1]  now_ms      int     '' = the server's clock
-- ARGV[2+] garbage     2 each  entry id, failure (JSON)
-- returns  a word for each looked at: buried, dropped, adopted (given back), or left (it is gone, or a job's own entry
--          after all). A shorter list than asked means 1 MB was reached: call again with the rest
-- cost     O(entries) and their bytes, which lie in Redis already; at most 500 a call, 1 MB, but one at least
--
-- Kept are the bytes of the field `job`, or all fields when it has none.
-- Why an entry that was delivered and is no longer pending is not given back: reclaim acknowledged it, because it was no
-- job's, and as a job's own it would look like work that is done. mend then schedules the job anew.
-- Why HDEL of nothing comes first: it is a write that a server at its memory limit allows, and opens it for the rest.

local entries, stream, scheduled, failed, completed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local jobs, errors, meta = KEYS[6], KEYS[7], KEYS[8]
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local at = string.format('%.0f', now)
for _, key in ipairs({ entries, jobs, errors, meta }) do redis.call('HLEN', key) end
for _, key in ipairs({ scheduled, failed, completed }) do redis.call('ZCARD', key) end
redis.call('XLEN', stream)
redis.call('HDEL', meta, '')

local function pad(id)
  return (string.gsub(id, '%d+', function(digits) return string.rep('0', 20 - #digits) .. digits end))
end
local function place_of(id)
  if redis.call('HEXISTS', entries, id) == 1 then return entries end
  for _, set in ipairs({ scheduled, failed, completed }) do
    if redis.call('ZSCORE', set, id) then return set end
  end
end
local function somebodys(entry)
  local rows, last = redis.pcall('XPENDING', stream, 'delayq', entry, entry, 1), nil
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local is = {}
    for n = 1, #group, 2 do is[group[n]] = group[n + 1] end
    if is.name == 'delayq' then last = is['last-delivered-id'] end
  end
  return #rows > 0 or (last and pad(entry) > pad(last))
end

local reply, bytes, gone, scores, payloads, failures = {}, 0, {}, {}, {}, {}
for i = 2, #ARGV, 2 do
  local entry, is, all, word = ARGV[i], {}, {}, 'left'
  local found = redis.call('XRANGE', stream, entry, entry)[1]
  for n = 1, found and #found[2] or 0, 2 do
    is[found[2][n]], bytes = found[2][n + 1], bytes + #found[2][n + 1]
    all[#all + 1] = found[2][n] .. '=' .. found[2][n + 1]
  end
  if bytes > 1000000 and #reply > 0 then break end
  local known = is.id and redis.call('HEXISTS', jobs, is.id) == 1
  if known and not place_of(is.id) and somebodys(entry) then
    redis.call('HSET', entries, is.id, entry)
    word = 'adopted'
  elseif found and not (is.id and redis.call('HGET', entries, is.id) == entry) then
    gone[#gone + 1], word = entry, known and 'dropped' or 'buried'
    if not known then
      local id = 'x-' .. entry
      scores[#scores + 1], scores[#scores + 2] = at, id
      payloads[#payloads + 1], payloads[#payloads + 2] = id, is.job or table.concat(all, '\n')
      failures[#failures + 1], failures[#failures + 2] = id, ARGV[i + 1]
    end
  end
  reply[#reply + 1] = word
end
if #gone > 0 then
  redis.call('XACK', stream, 'delayq', unpack(gone))
  redis.call('XDEL', stream, unpack(gone))
end
if #scores > 0 then
  redis.call('ZADD', failed, unpack(scores))
  redis.call('HSET', jobs, unpack(payloads))
  redis.call('HSET', errors, unpack(failures))
  redis.pcall('HINCRBY', meta, 'failed_total', #scores / 2)
end
return reply
