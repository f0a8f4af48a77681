-- A server at its memory limit refuses a script at its first write, if that may grow. Deleting nothing is always
-- allowed, and opens the rest of the script: what drains or repairs a queue starts with it.
local function may_write(hash)
  redis.call('HDEL', hash, '')
end
