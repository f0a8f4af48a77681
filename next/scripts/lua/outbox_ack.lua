-- outbox_ack: Delete outbox records that a relay has handled.
--
-- MOVES  nothing
--
-- KEYS   outbox      stream  job-end records for the relay
--
-- ARGV*  relayed     {entry}   entry: id of the record
--
-- RETURNS  The number of records that were still there
-- COST     O(records); send at most 500

-- include: column

if #relayed == 0 or redis.call('XLEN', outbox) == 0 then
  return 0
end
return redis.call('XDEL', outbox, unpack(column(relayed, 'entry')))
