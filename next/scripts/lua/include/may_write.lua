-- Makes a full server accept the rest of the script. A full server refuses a command that needs memory, unless the
-- script has already called a write command. It always accepts the write command HDEL, which here deletes nothing.
local function may_write(hash)
  redis.call('HDEL', hash, '')
end
