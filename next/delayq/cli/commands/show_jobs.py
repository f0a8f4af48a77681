"""Commands that read jobs: show, list, upcoming, why."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
import typer

from delayq.cli.commands.workers import read_control
from delayq.cli.options import JobId, Json, Limit, Name, Queue, Tag, TimeSince, TimeUntil, WhichQueue, WhichQueues
from delayq.cli.output import print_json, print_note, print_table, print_text
from delayq.cli.selection import Refusals, found_jobs, head, named_queues
from delayq.cli.session import CliSession, check_queue_known, session_of
from delayq.client import DelayQ
from delayq.core.display import several
from delayq.core.errors import FoundElsewhere, JobNotFound, NodeError
from delayq.core.failure import Failure
from delayq.core.job_search import JobSearch, SearchedState
from delayq.core.json_shapes.jobs import FullJobShape, JobShape, ReasonShape, UnknownJobShape, WhyShape
from delayq.core.json_shapes.members import members_of
from delayq.core.json_shapes.queues import UpcomingShape
from delayq.core.outcome import SUSPECT
from delayq.core.times import format_duration, format_instant, rough_duration
from delayq.core.views import Control, JobInfo, QueueStats, WorkerInfo
from delayq.diagnostics.explain_job import Facts, explain_job

MOST_LOOKUPS: Final = 100
"""Maximum number of running jobs that `why` reads to find suspects."""

_DURATIONS: Final = ("retention_ms", "timeout_ms", "idle_ms")
ENCRYPTED: Final = "(encrypted)"

_SAYS_NOTHING: Final = {"encrypted": False, "recoveries": 0}
_TIMES: Final = {"failed": "FAILED", "completed": "KEPT UNTIL"}
_LABELS: Final = {"forget": "kept until", "cancel_asked": "cancel asked"}


def show(context: typer.Context, id: JobId, queue: Queue = None, json: Json = False) -> None:
    """Show all details of a job.

    delayq show order-42 --queue orders
    """
    session = session_of(context)
    with session.client() as client:
        print_job(find_job(session, client, id, queue, as_json=json), as_json=json)


def list_jobs(
    context: typer.Context,
    state: Annotated[
        SearchedState,
        typer.Option("--state", help="State of the jobs; retry = scheduled jobs with ATTEMPTS above 0."),
    ] = "scheduled",
    queue: WhichQueues = None,
    name: Name = None,
    tag: Tag = None,
    since: TimeSince = None,
    until: TimeUntil = None,
    waiting_for_code: Annotated[
        bool,
        typer.Option(
            "--waiting-for-code",
            help="Only jobs that wait for a newer release, because a worker did not know their name or a field of "
            "their payload. Without --queue, in all queues.",
        ),
    ] = False,
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """List the jobs of a queue in one state, sorted by time. With --json, print one line for each job.

    delayq list --state retry --name 'order.*' --queue orders

    Failed jobs are listed latest first, and all other jobs earliest first.
    """
    session, refusals = session_of(context), Refusals()
    with session.client() as client:
        queues = named_queues(client, queue)
        if queues is None and not waiting_for_code:
            queues = [session.queue_or_default(None)]
        search = JobSearch(
            state=state,
            queues=queues,
            name=name,
            tag=tag,
            since=since,
            until=until,
            waiting_for_code=waiting_for_code,
        )
        jobs, is_more = head(found_jobs(client, search, refusals), limit)
    if json:
        for job in jobs:
            print_json(JobShape.of(job))
    else:
        _print_jobs(jobs, time=_TIMES.get(state, "DUE"), with_queue=queues is None or len(queues) > 1)
    if is_more:
        print_note(f"The list has only {several(limit, 'job')}, but more match. Use a higher --limit.")
    if not jobs and not refusals.exit_code and not session.quiet:
        _tell_nothing(queues, state)
    raise typer.Exit(refusals.exit_code)


def upcoming(
    context: typer.Context,
    queue: WhichQueue = None,
    span: Annotated[str, typer.Option("--span", metavar="DURATION", help="Length of each time span.")] = "1m",
    spans: Annotated[int, typer.Option("--spans", metavar="N", min=1, help="Number of spans.")] = 60,
    json: Json = False,
) -> None:
    """Count the jobs that become due in the next minutes, or in other time spans.

    delayq upcoming --queue orders --span 1h --spans 24
    """
    with session_of(context).client() as client:
        if queue is not None:
            check_queue_known(client, queue)
        found = client.upcoming(queue, span=span, spans=spans)
    if json:
        print_json(UpcomingShape.of(found))
        return
    starts = (found.now_ms + n * found.span_ms for n in range(len(found.counts)))
    spans_from = [(format_instant(start), count) for start, count in zip(starts, found.counts, strict=True)]
    rows = [("overdue", found.overdue), *spans_from, ("later", found.later)]
    print_table(("DUE FROM", "JOBS"), [(start, f"{count:,}") for start, count in rows if count])


def why(context: typer.Context, id: JobId, queue: Queue = None, json: Json = False) -> None:
    """Explain why a job has not run. The most important reason comes first, with the next step.

    delayq why order-42 --queue orders
    """
    session = session_of(context)
    with session.client() as client:
        job = find_job(session, client, id, queue, as_json=json)
        (stats,) = client.stats(job.queue)
        control = read_control(client) or Control(stats.now_ms)
        workers = _read_workers(client)
        suspects = _read_suspects(client, workers or (), stats) if job.state == "ready" else []
        facts = Facts(job, stats, control, workers, session.settings.high_water, suspects)
    reasons = explain_job(facts)
    if json:
        print_json(WhyShape.of(job, [ReasonShape(reason.code, reason.what, reason.next) for reason in reasons]))
        return
    print_text(f"{job.id}  {job.state} in queue {job.queue}")
    for reason in reasons:
        print_text(f"  {reason.what} {reason.next}".rstrip())


def _read_workers(client: DelayQ) -> list[WorkerInfo] | None:
    """Read the list of workers. If its node of a cluster does not answer, print a note and return None."""
    try:
        return client.workers()
    except NodeError as error:
        print_note(f"The list of workers cannot be read. {error}")
        return None


def _read_suspects(client: DelayQ, workers: Iterable[WorkerInfo], stats: QueueStats) -> list[JobInfo]:
    """Return the suspects that were started less than a lease ago. Their children still take no other jobs."""
    running = [one for worker in workers if stats.queue in worker.queues for one in worker.about.get("running", ())]
    fresh = [one for one in running if one.get("started_ms", 0) > stats.now_ms - stats.lease_ms]
    jobs = [client.get(one["id"], queue=one["queue"]) for one in fresh[:MOST_LOOKUPS]]
    return [job for job in jobs if job is not None and job.consumer and job.recoveries >= SUSPECT]


def find_job(session: CliSession, client: DelayQ, id: str, queue: str | None, *, as_json: bool) -> JobInfo:
    """Return a job. Raises JobNotFound, or QueueNotFound if the queue that the user named is unknown too.

    `as_json`: before JobNotFound is raised, the answer is printed as JSON.
    """
    try:
        job = client.get(id, queue=queue)
    except FoundElsewhere:
        if as_json:
            print_json(UnknownJobShape(id, session.queue_or_default(queue)))
        raise
    if job is None and queue is not None:
        check_queue_known(client, queue)
    if job is None:
        where = session.queue_or_default(queue)
        if as_json:
            print_json(UnknownJobShape(id, where))
        raise JobNotFound(
            f"No job {id!r} is known in the queue {where!r}.",
            hint="A cancelled job is deleted, and so is a completed job without a retention.",
        )
    return job


def print_job(job: JobInfo, *, as_json: bool) -> None:
    """Print all details of a job."""
    shape = FullJobShape.of(job)
    if as_json:
        print_json(shape)
        return
    members = members_of(shape)
    if job.is_encrypted:
        members |= {"data": ENCRYPTED} | ({} if job.stored_result is None else {"result": ENCRYPTED})
    for label, text in _rows_of(members):
        print_text(f"{label:<13} {text}")
    if job.failure is not None:
        _print_failure(job.failure)


def _rows_of(shape: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the label and text of each member that has a value. Times are printed as text, not in milliseconds."""
    for member, value in shape.items():
        if member in _DURATIONS and value is not None:
            yield member.removesuffix("_ms"), rough_duration(value) if member == "idle_ms" else format_duration(value)
        elif not (member == "error" or member.endswith("_ms") or _says_nothing(member, value)):
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            yield _LABELS.get(member, member), text


def _says_nothing(member: str, value: object) -> bool:
    if member == "data":
        return value is None
    return value is None or value in ([], {}) or (member in _SAYS_NOTHING and value == _SAYS_NOTHING[member])


def _print_failure(failure: Failure) -> None:
    """Print the last error, the first one if there were several, and the traceback of the last error."""
    print_text(f"{'error':<13} {failure.type}: {_one_line(failure.message)}")
    if failure.history:
        print_text(f"{'first error':<13} {failure.first.type}: {_one_line(failure.first.message)}")
    for line in failure.traceback.splitlines():
        print_text(f"  {line}")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _print_jobs(jobs: Iterable[JobInfo], *, time: str, with_queue: bool) -> None:
    """Print a table of jobs. `time`: the head of the column with their times."""
    rows = []
    for job in jobs:
        shape = JobShape.of(job)
        when = shape.due or shape.failed or shape.forget or ""
        queue = [job.queue] if with_queue else []
        rows.append((job.id, job.name, *queue, when, job.attempts if job.attempts is not None else "?"))
    print_table(("ID", "NAME", *(["QUEUE"] if with_queue else []), time, "ATTEMPTS"), rows)


def _tell_nothing(queues: Sequence[str] | None, state: str) -> None:
    if queues is None:
        print_note(f"No queue has a matching job in the state {state}.")
        return
    where = f"queue {queues[0]} has" if len(queues) == 1 else f"queues {', '.join(queues)} have"
    print_note(
        f"The {where} no matching job in the state {state}. Choose another queue or state with --queue and --state."
    )
