-- Adds `step` to a counter of `meta`. Errors are ignored, because the job has been moved already.
local function count(meta, counter, step)
  if step > 0 then
    redis.pcall('HINCRBY', meta, counter, step)
  end
end
