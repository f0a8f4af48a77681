-- order: tells one worker to take no new jobs, to leave, or to work as usual again.
--
-- moves    nothing
-- KEYS[1]  order    string   of no queue: the worker's own
-- ARGV[1]  order    text     quiet, restart or stop; '' = work as usual
-- ARGV[2]  keep_ms  int      how long the order is kept; the worker that obeys it prolongs that
-- ARGV[3]  switch   text     channel
-- returns  1
-- cost     O(1)
--
-- Why the order expires: a worker that was killed cannot take its order back, and its name never comes again.
-- Why DEL comes first: it is a write that a server at its memory limit allows, and opens it for the SET. An operator
-- must be able to stop a worker on a full server.
-- Why a hint that cannot be sent is no error: workers read their order every few seconds.

local order = KEYS[1]
local word, keep_ms = ARGV[1], ARGV[2]
redis.call('GET', order) -- a key of another type is an error before anything is written
redis.call('DEL', order)
if word ~= '' then redis.call('SET', order, word, 'PX', keep_ms) end
redis.pcall('PUBLISH', ARGV[3], '')
return 1
