-- rewrite: Replace the envelopes of reserved jobs, because their handlers have changed the chains of these jobs. The
-- caller sends `ack` only after this script has succeeded, so that no change is lost when the job completes.
--
-- MOVES  nothing
--
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   jobs        hash    id -> envelope JSON
--
-- ARGV*  held        {id entry envelope}
--          id        job id
--          entry     entry id that the caller received
--          envelope  new envelope JSON
--
-- RETURNS  A list with a number for each row:
--            1  replaced
--            0  nothing changed: fenced, because the job has another entry by now, or was already settled
-- COST     O(rows); send at most 500 rows and 1 MB

-- include: owned_rows
-- include: may_write

local owned, answers = owned_rows(entries, held)
may_write(jobs)
for _, row in ipairs(owned) do
  redis.call('HSET', jobs, row.id, row.envelope)
end
return answers
