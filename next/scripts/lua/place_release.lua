-- place_release: Free the place of a job under a concurrency limit.
--
-- MOVES  nothing
--
-- KEYS   holders     zset    `<queue> <job id>` -> time at which the place expires, epoch ms
--
-- ARGV   holder      text    `<queue> <job id>` of the job
-- ARGV   expires_ms  int     the time that `place_acquire` returned
--
-- RETURNS  1  the place is free
--          0  nothing changed: the place has expired, or a later attempt of the job has taken it over
-- COST     O(log(places))

if tonumber(redis.call('ZSCORE', holders, holder) or 0) ~= expires_ms then
  return 0
end
return redis.call('ZREM', holders, holder)
