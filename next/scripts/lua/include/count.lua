-- Adds to a counter of `meta`. Counting never fails a move.
local function count(meta, counter, step)
  if step > 0 then
    redis.pcall('HINCRBY', meta, counter, step)
  end
end
