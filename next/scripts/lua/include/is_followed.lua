-- Returns true if the job may be in a chain or a batch, so that its end may be followed by another job. The envelope is
-- searched as text, because scripts do not decode envelopes. If the data of a job contains these words by chance, the
-- relay decodes the envelope and finds nothing to do.
local function is_followed(envelope)
  return string.find(envelope, '"chain":', 1, true) or string.find(envelope, '"batch":', 1, true)
end
