"""/v1/jobs/batch: many jobs in one request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from fastapi import APIRouter, Request, Response

from delayq.core.errors import ConfigError, InvalidInput
from delayq.core.spec import JobSpec, prepare
from delayq.core.states import Answer, OnConflict
from delayq.core.views import JobRef
from delayq.core.when import format_instant
from delayq.http import blame
from delayq.http.access import Writer
from delayq.http.answers import answer
from delayq.http.api.jobs import Key, check_durability, check_queue
from delayq.http.api.models.jobs import NewJobs, Scheduled, ScheduledJobs
from delayq.http.bodies import invalid, read_through
from delayq.http.documented import answers, takes
from delayq.http.new_queues import admit_jobs
from delayq.http.problems import Problem, Refused
from delayq.http.repeats import repeatable
from delayq.http.service import Served, Service
from delayq.redis.idempotent import named, schedule_once

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
_outcome = attrgetter("outcome")
EXAMPLE: Final = {"jobs": [{"name": "mail.send", "data": {"to": 1}, "delay": "1h"}, {"name": "mail.send"}]}


@router.post(
    "/batch",
    summary="Schedule up to 1,000 jobs",
    status_code=201,
    openapi_extra=takes(NewJobs, EXAMPLE),
    responses=answers({201: ("At least one was created.", ScheduledJobs), 200: ("None was new.", ScheduledJobs)}),
)
async def create_many(request: Request, service: Served, caller: Writer, key: Key = None) -> Response:
    """All are checked before the first is sent; each then has an outcome of its own, `conflict` among them. 403 as for
    one job."""
    new, through = await read_through(request, NewJobs)
    if caller.key is not None and caller.key.queues:
        for n, job in enumerate(new.jobs):
            check_queue(service, caller, job, f"#/jobs/{n}/")
    specs = [job.spec(read=through) for job in new.jobs]
    how, client, headers = OnConflict(new.on_conflict), service.client, {}
    try:
        check_durability(new.durability)
        await admit_jobs(service, caller, specs, how)
        if key is None:
            refs = await client.run(client.verbs.schedule_many(specs, how, new.durability))
        else:
            mark = repeatable(key, caller, await request.body())
            specs = [job.spec(job_id, read=through) for job, job_id in zip(new.jobs, named(specs, mark), strict=True)]
            refs, again = await client.run(schedule_once(client.verbs, specs, how, new.durability, mark))
            headers = {"Idempotent-Replayed": "true"} if again else {}
    except ConfigError as error:
        asks = [n for n, job in enumerate(new.jobs) if job.encrypted]
        if not asks:
            raise
        raise Refused(invalid(f"#/jobs/{asks[0]}/encrypted", error.message)) from error  # this server has no key
    except InvalidInput as error:
        raise Refused(blame_one(service, new, specs, error)) from error
    outcomes = Counter(map(_outcome, refs))
    shape = ScheduledJobs(jobs=_shaped(refs), outcomes={str(word): number for word, number in outcomes.items()})
    return answer(shape, 201 if outcomes[Answer.CREATED] else 200, headers)


def blame_one(service: Service, new: NewJobs, specs: list[JobSpec], error: InvalidInput) -> Problem:
    """The problem of the job that is refused by itself, with its number; else of the request as a whole."""
    for n, (job, spec) in enumerate(zip(new.jobs, specs, strict=True)):
        try:
            prepare(spec, service.client.options, 0, OnConflict(new.on_conflict))
        except InvalidInput as raised:
            if raised.message == error.message:
                return blame.problem(error, job, before=f"#/jobs/{n}/")
    return blame.problem(error, new)


def _shaped(refs: Sequence[JobRef]) -> list[Scheduled]:
    """What became of each, and each due time written once: most jobs of a batch fall due together."""
    times: dict[int | None, str | None] = {}
    found = []
    for ref in refs:
        due_ms = ref.due_ms
        if due_ms not in times:
            times[due_ms] = None if due_ms is None else format_instant(due_ms)
        found.append(
            Scheduled(
                id=ref.id,
                name=ref.name,
                queue=ref.queue,
                state=ref.state,
                due_ms=due_ms,
                due=times[due_ms],
                outcome=ref.outcome,
            )
        )
    return found
