-- Makes a full server accept the rest of the script. A full server refuses commands that need memory only until the
-- script has called its first write command. It always accepts HDEL, which here deletes nothing.
local function may_write(hash)
  redis.call('HDEL', hash, '')
end
