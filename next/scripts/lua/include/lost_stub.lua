-- Returns an envelope that replaces a lost one.
local function lost_stub(id, queue)
  local named = '{"v":1,"id":' .. cjson.encode(id) .. ',"name":"delayq.lost","queue":"' .. queue .. '"'
  return named .. ',"data":null,"attempts":0,"created_ms":0}'
end
