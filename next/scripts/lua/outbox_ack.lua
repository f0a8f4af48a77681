-- outbox_ack: take out of the outbox what a relay has sent on.
--
-- MOVES  nothing
--
-- KEYS   outbox      stream  ends of jobs, for the relay
--
-- ARGV*  relayed     {entry}
--
-- RETURNS  how many were still there
-- COST     O(entries); at most 500 a call

-- include: column

if #relayed == 0 or redis.call('XLEN', outbox) == 0 then
  return 0
end
return redis.call('XDEL', outbox, unpack(column(relayed, 'entry')))
