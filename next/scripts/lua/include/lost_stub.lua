-- The envelope that stands for a lost payload.
local function lost_stub(id, queue)
  local named = '{"v":1,"id":' .. cjson.encode(id) .. ',"name":"delayq.lost","queue":"' .. queue .. '"'
  return named .. ',"data":null,"attempts":0,"created_ms":0}'
end
