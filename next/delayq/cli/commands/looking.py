"""Commands that look at jobs: show, list."""

from typing import Annotated

import msgspec
import typer

from delayq.cli.options import JobId, Json, Queue
from delayq.cli.output import print_json, print_table, print_text
from delayq.cli.session import check_queue_known, session_of
from delayq.core import json_shapes
from delayq.core.errors import JobNotFound
from delayq.core.views import JobState


def show(context: typer.Context, id: JobId, queue: Queue = None, json: Json = False) -> None:
    """Show everything that is known about a job."""
    session = session_of(context)
    with session.client() as client:
        job = client.get(id, queue=queue)
    if job is None:
        name = session.settings.queue if queue is None else queue
        raise JobNotFound(
            f"No job {id!r} is known in the queue {name!r}.",
            hint="It may be done already: finished jobs are kept only with a retention.",
        )
    shape = json_shapes.of_job_in_full(job)
    if json:
        print_json(shape)
        return
    for member, value in shape.items():
        if value not in (None, [], {}) and not member.endswith("_ms"):
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            print_text(f"{member:<13} {text}")


def list_jobs(
    context: typer.Context,
    state: Annotated[JobState, typer.Option("--state", help="State of the jobs.")] = "scheduled",
    queue: Queue = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Jobs at most.")] = 100,
    json: Json = False,
) -> None:
    """List the jobs of a queue in one state, in their order. With --json: one line of JSON for each."""
    with session_of(context).client() as client:
        jobs = []
        for job in client.iter_jobs(state, queue=queue):
            jobs.append(job)
            if len(jobs) == limit:
                break
        if queue is not None and not jobs:
            check_queue_known(client, queue)
    if json:
        for job in jobs:
            print_json(json_shapes.of_job(job))
        return
    rows = []
    for job in jobs:
        shape = json_shapes.of_job(job)
        when = shape["due"] or shape["failed"] or shape["forget"] or ""
        rows.append((job.id, job.name, when, job.attempts if job.attempts is not None else "?"))
    print_table(("ID", "NAME", "TIME", "ATTEMPTS"), rows)
