"""Commands that look at jobs: show, list, upcoming, why."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from itertools import islice
from typing import Annotated, Literal

import msgspec
import typer

from delayq.cli.options import JobId, Json, Limit, Name, Queue
from delayq.cli.output import print_json, print_note, print_table, print_text
from delayq.cli.session import CliSession, check_queue_known, session_of
from delayq.client import DelayQ
from delayq.core import json_shapes
from delayq.core.errors import JobNotFound
from delayq.core.times import format_instant
from delayq.core.views import JobInfo, JobState
from delayq.diagnostics.explain_job import Facts, explain_job

ListedState = Literal[JobState, "retry"]


def show(context: typer.Context, id: JobId, queue: Queue = None, json: Json = False) -> None:
    """Show everything that is known about a job.

    delayq show order-42 --queue orders
    """
    session = session_of(context)
    with session.client() as client:
        print_job(find_job(session, client, id, queue), as_json=json)


def list_jobs(
    context: typer.Context,
    state: Annotated[
        ListedState,
        typer.Option("--state", help="State of the jobs; retry: scheduled again after an attempt."),
    ] = "scheduled",
    queue: Queue = None,
    name: Name = None,
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """List the jobs of a queue in one state, in their order. With --json: one line of JSON for each.

    delayq list --state retry --name 'order.*' --queue orders
    """
    with session_of(context).client() as client:
        if queue is not None:
            check_queue_known(client, queue)
        found = client.iter_jobs("scheduled" if state == "retry" else state, queue=queue)
        wanted = (job for job in found if _is_wanted(job, name, is_retry=state == "retry"))
        jobs = list(islice(wanted, limit))
        is_more = next(wanted, None) is not None
    if json:
        for job in jobs:
            print_json(json_shapes.of_job(job))
    else:
        _print_jobs(jobs)
    if is_more:
        print_note(f"There are more than {limit:,}; --limit shows more.")


def upcoming(
    context: typer.Context,
    queue: Queue = None,
    span: Annotated[str, typer.Option("--span", metavar="DURATION", help="Length of one span of time.")] = "1m",
    spans: Annotated[int, typer.Option("--spans", min=1, help="Number of spans.")] = 60,
    json: Json = False,
) -> None:
    """Count the jobs that fall due in the next minutes, or in other spans of time.

    delayq upcoming --queue orders --span 1h --spans 24
    """
    with session_of(context).client() as client:
        if queue is not None:
            check_queue_known(client, queue)
        found = client.upcoming(queue, span=span, spans=spans)
    if json:
        print_json(json_shapes.of_upcoming(found))
        return
    starts = (found.now_ms + n * found.span_ms for n in range(len(found.counts)))
    spans_from = [(format_instant(start), count) for start, count in zip(starts, found.counts, strict=True)]
    rows = [("overdue", found.overdue), *spans_from, ("later", found.later)]
    print_table(("DUE FROM", "JOBS"), [(start, f"{count:,}") for start, count in rows if count])


def why(context: typer.Context, id: JobId, queue: Queue = None, json: Json = False) -> None:
    """Tell why a job has not run, the weightiest reason first, and what to do.

    delayq why order-42 --queue orders
    """
    session = session_of(context)
    with session.client() as client:
        job = find_job(session, client, id, queue)
        (stats,) = client.stats(job.queue)
        facts = Facts(job, stats, client.control(), client.workers(), session.settings.high_water)
    reasons = explain_job(facts)
    if json:
        print_json({"id": job.id, "name": job.name, "queue": job.queue, "state": job.state, "reasons": reasons})
        return
    print_text(f"{job.id}  {job.state} in queue {job.queue}")
    for reason in reasons:
        print_text(f"  {reason.what} {reason.next}".rstrip())


def find_job(session: CliSession, client: DelayQ, id: str, queue: str | None) -> JobInfo:
    """Return a job; raises JobNotFound."""
    job = client.get(id, queue=queue)
    if job is None:
        raise JobNotFound(
            f"No job {id!r} is known in the queue {queue or session.settings.queue!r}.",
            hint="It may be done already: finished jobs are kept only with a retention.",
        )
    return job


def print_job(job: JobInfo, *, as_json: bool) -> None:
    """Print everything that is known about a job."""
    shape = json_shapes.of_job_in_full(job)
    if as_json:
        print_json(shape)
        return
    for member, value in shape.items():
        if value not in (None, [], {}) and not member.endswith("_ms"):
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            print_text(f"{member:<13} {text}")


def _is_wanted(job: JobInfo, name: str | None, *, is_retry: bool) -> bool:
    return (name is None or fnmatchcase(job.name, name)) and (not is_retry or bool(job.attempts))


def _print_jobs(jobs: Iterable[JobInfo]) -> None:
    rows = []
    for job in jobs:
        shape = json_shapes.of_job(job)
        when = shape["due"] or shape["failed"] or shape["forget"] or ""
        rows.append((job.id, job.name, when, job.attempts if job.attempts is not None else "?"))
    print_table(("ID", "NAME", "TIME", "ATTEMPTS"), rows)
