-- Returns the names of all counters of `meta`, without `_total`, and a list of their values.
local function read_counters(meta)
  local names = { 'scheduled', 'promoted', 'acked', 'released', 'failed', 'cancelled', 'reclaimed', 'handed_back' }
  local fields = {}
  for n, name in ipairs(names) do
    fields[n] = name .. '_total'
  end
  local counts = redis.call('HMGET', meta, unpack(fields))
  for n = 1, #names do
    counts[n] = tonumber(counts[n] or 0) or 0
  end
  return names, counts
end
