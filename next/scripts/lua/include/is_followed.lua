-- Whether something follows the end of a job: it has a chain or a batch. The text is searched and not decoded; a
-- payload that holds these words by chance costs the relay one look.
local function is_followed(envelope)
  return string.find(envelope, '"chain":', 1, true) or string.find(envelope, '"batch":', 1, true)
end
