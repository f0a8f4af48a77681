-- order: tell one worker to take no new jobs, to leave, or to work as usual again.
--
-- moves    nothing
-- KEYS[1]  order    string   of no queue: the worker's own
-- ARGV[1]  order    text     quiet, restart or stop; '' = work as usual
-- ARGV[2]  keep_ms  int      how long the order is kept; the worker that obeys it prolongs that
-- ARGV[3]  switch   text     channel of the hint
-- returns  1
-- cost     O(1)
--
-- The order expires, because a worker that was killed cannot take its order back, and its name never comes again.

local order = KEYS[1]
local word = ARGV[1]
local keep_ms = ARGV[2]
redis.call('GET', order) -- a key of another type raises its error before the first write
-- A server at its memory limit lets a script go on that starts with DEL. So a worker can be stopped on a full server.
redis.call('DEL', order)
if word ~= '' then
  redis.call('SET', order, word, 'PX', keep_ms)
end
-- A hint that cannot be sent is no error: workers read their order every few seconds.
redis.pcall('PUBLISH', ARGV[3], '')
return 1
