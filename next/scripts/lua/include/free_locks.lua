-- Frees the unique keys of these jobs, except keys that another job owns by now.
local function free_locks(unique, locks, ids)
  if redis.call('HLEN', locks) == 0 then
    return
  end
  for n, digest in ipairs(redis.call('HMGET', locks, unpack(ids))) do
    if digest and redis.call('HGET', unique, digest) == ids[n] then
      redis.call('HDEL', unique, digest)
    end
  end
  redis.call('HDEL', locks, unpack(ids))
end
