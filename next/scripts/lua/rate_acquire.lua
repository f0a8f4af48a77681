-- rate_acquire: Take one token of each of several rates, or no token at all.
--
-- MOVES  nothing
--
-- KEYS   rates     hash         `<most>/<per_ms>/<burst>` -> time at which the bucket is full again, epoch ms
-- KEYS   counters  hash         granted, refused: numbers of granted and refused calls since the limit was first used
--
-- ARGV   now       exact_clock  epoch ms, for tests; '' = server clock
-- ARGV*  wanted    {most per_ms burst}
--          most    number of tokens that come back in `per_ms`
--          per_ms  duration in which `most` tokens come back, in ms
--          burst   number of tokens of a full bucket
--
-- RETURNS  1  one token of each rate was taken
--          0  nothing changed, except for a counter: at least one bucket is empty
-- COST     O(rows)
--
-- This is the generic cell rate algorithm (GCRA): a token bucket that stores one number. The bucket of a rate that is
-- not stored is full, so a changed rate begins with a full bucket. Each call takes tokens, so a caller that does not
-- get the reply must not repeat the call. A full server refuses the script.

local changes = {} -- field, time, field, time …
local last = now
for _, row in ipairs(wanted) do
  local field = row.most .. '/' .. row.per_ms .. '/' .. row.burst
  local interval = tonumber(row.per_ms) / tonumber(row.most)
  local capacity = interval * tonumber(row.burst)
  local full_at = tonumber(redis.call('HGET', rates, field) or now) or now
  local after = math.max(full_at, now) + interval
  if after - now > capacity + 0.001 then
    redis.call('HINCRBY', counters, 'refused', 1)
    return 0
  end
  last = math.max(last, after)
  changes[#changes + 1] = field
  changes[#changes + 1] = string.format('%.3f', after)
end
redis.call('HSET', rates, unpack(changes))
local left = math.max(math.ceil(last - now), 1)
if redis.call('PTTL', rates) < left then
  redis.call('PEXPIRE', rates, string.format('%.0f', left))
end
redis.call('HINCRBY', counters, 'granted', 1)
return 1
