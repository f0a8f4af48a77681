-- Returns an envelope that replaces the lost envelope of a job, so that clients can still show and delete the job.
local function lost_stub(id, queue)
  local named = '{"v":1,"id":' .. cjson.encode(id) .. ',"name":"delayq.lost","queue":"' .. queue .. '"'
  return named .. ',"data":null,"attempts":0,"created_ms":0}'
end
