-- progress: store what running jobs report of themselves.
--
-- MOVES  nothing
--
-- KEYS   entries     hash    id -> entry id, while the job is in the stream
-- KEYS   progress    hash    id -> last progress report, JSON
--
-- ARGV   now         clock
-- ARGV*  reports     {id entry report}   report: a JSON object without its closing brace, not empty
--
-- RETURNS  1 or 0 for each: written, or fenced (the entry is no longer this job's)
-- COST     O(reports); at most 500 and 1 MB a call
--
-- Every script that ends a delivery drops its report, so a report always comes from the worker that has the job now. A
-- full server refuses this script: it grows, and a job runs as well without it.

-- include: owned_rows

local owned, answers = owned_rows(entries, reports)
local at = ',"at_ms":' .. string.format('%.0f', now) .. '}'
for _, row in ipairs(owned) do
  redis.call('HSET', progress, row.id, row.report .. at)
end
return answers
