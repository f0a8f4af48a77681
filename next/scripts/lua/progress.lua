-- progress: Store the progress reports of running jobs.
--
-- MOVES  nothing
--
-- KEYS   entries     hash    id -> stream entry id, for ready and reserved jobs
-- KEYS   progress    hash    id -> last progress report, JSON
--
-- ARGV   now         clock   epoch ms, for tests; '' = server clock
-- ARGV*  reports     {id entry report}   report: a JSON object with at least one member, without its closing brace
--
-- RETURNS  A list with a number for each row:
--            1  stored
--            0  nothing changed: fenced
-- COST     O(rows); send at most 500 rows and 1 MB
--
-- The script appends the member at_ms to each report. A full server refuses the script, which does no harm, because
-- jobs run without reports too. Every script that takes a job from its worker deletes the report, so that a report
-- always comes from the worker that has the job now.

-- include: owned_rows

local owned, answers = owned_rows(entries, reports)
local at = ',"at_ms":' .. string.format('%.0f', now) .. '}'
for _, row in ipairs(owned) do
  redis.call('HSET', progress, row.id, row.report .. at)
end
return answers
