"""Commands that change jobs: schedule, cancel, run-now, reschedule, archive."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Final

import typer

from delayq.cli.options import At, Fold, In, JobId, Json, Queue, Reason, Tz
from delayq.cli.output import print_json, print_note, print_text
from delayq.cli.payload import read_payload
from delayq.cli.session import CliSession, check_queue_known, session_of
from delayq.cli.unconfirmed import unsure_change
from delayq.client import DelayQ, JobRef
from delayq.core.errors import (
    Conflict,
    DelayqError,
    FoundElsewhere,
    InvalidInput,
    JobFinished,
    JobHasFailed,
    JobNotFound,
    JobRunning,
)
from delayq.core.exit_codes import ExitCode
from delayq.core.job_spec import when_of
from delayq.core.json_shapes.answers import MovedJobShape, OutcomeShape, ScheduledJobShape
from delayq.core.names import check_queue
from delayq.core.states import Answer, OnConflict
from delayq.core.times import format_instant
from delayq.core.unique import Unique

REFUSED: Final[Mapping[str, ExitCode]] = {
    "unknown": ExitCode.UNKNOWN_ID,
    "running": ExitCode.CONFLICT,
    "failed": ExitCode.CONFLICT,
    "finished": ExitCode.CONFLICT,
}
"""Exit code by answer, for calls that changed nothing."""

_ANSWERS: Final[Mapping[type[DelayqError], Answer]] = {
    JobNotFound: "unknown",
    JobRunning: "running",
    JobHasFailed: "failed",
    JobFinished: "finished",
}
"""Errors that `run_now` and `reschedule` raise, with the answer that each stands for."""

UNKNOWN: Final = "The queue {queue} has no job {id}: the job was completed, cancelled or deleted, or never existed."
CANCEL_HINTS: Final[Mapping[Answer, str]] = {
    "running": "The job is running; --running asks it to stop.",
    "failed": "The job has failed; `delayq failed forget {id} --queue {queue}` deletes it.",
    "unknown": UNKNOWN,
}
ARCHIVE_HINTS: Final[Mapping[Answer, str]] = {
    "running": "The job is running; `delayq cancel {id} --queue {queue} --running` asks it to stop.",
    "failed": "The job is already among the failed jobs.",
    "finished": "The job is completed, so it cannot fail any more.",
    "unknown": UNKNOWN,
}


def schedule(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the job, such as order.close.", show_default=False)
    ],
    delay: In = None,
    at: At = None,
    tz: Tz = None,
    fold: Fold = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="JSON", help="Payload: JSON, @FILE, or - for stdin.")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Id of the job [generated].")] = None,
    queue: Queue = None,
    on_conflict: Annotated[
        OnConflict, typer.Option("--on-conflict", help="Action if a job with this id exists.")
    ] = "keep",
    tries: Annotated[int | None, typer.Option("--tries", help="Maximum number of attempts; 0 = no limit.")] = None,
    retention: Annotated[
        str | None, typer.Option("--retention", metavar="DURATION", help="Keep the completed job this long.")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="DURATION", help="Maximum running time of one attempt; 0s = no limit."),
    ] = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline",
            metavar="DURATION|TIME",
            help="Time after which the job is useless. A job that has not started by then fails, and a handler that "
            "still runs is interrupted. A duration counts from the due time.",
        ),
    ] = None,
    tags: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            metavar="TAG",
            help="Tag for `list --tag`; give --tag several times for several tags.",
            show_default=False,
        ),
    ] = None,
    unique: Annotated[
        str | None,
        typer.Option(
            "--unique", metavar="KEY", help="Store nothing while another job owns this unique key.", show_default=False
        ),
    ] = None,
    unique_for: Annotated[
        str | None,
        typer.Option(
            "--unique-for",
            metavar="DURATION",
            help="Keep the unique key for this time, even if the job ends earlier. Without --unique, the key is the "
            "job name with the payload.",
            show_default=False,
        ),
    ] = None,
    encrypted: Annotated[
        bool, typer.Option("--encrypted", help="Encrypt the payload and the kept result with the first encryption key.")
    ] = False,
    app: Annotated[
        str | None,
        typer.Option(
            "--app",
            metavar="MODULE",
            help="Module that declares the job. The declared options apply, and the payload is checked.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Schedule a job.

    delayq schedule order.close --in 15m --id order-42 --data '{"order_id": 42}'
    """
    payload = None if data is None else read_payload(data)
    # Before an embedded server is started:
    when_of(delay, at, tz=tz, fold=fold, now_ms=time.time_ns() // 1_000_000)
    if queue is not None:
        check_queue(queue)
    if unique == "":
        raise InvalidInput(
            "unique is ''.", hint="Use a text that is not empty, such as invoice-42, or leave it out.", field="unique"
        )
    session = session_of(context)
    with (
        _sending(session, app, name, payload, queue) as (send, where),
        session.audited("schedule", f"{name} in {where}") as deed,
    ):
        with (
            _conflict(id, where, as_json=json),
            unsure_change(id or "", where, partial(_print_reference, as_json=json), as_json=json),
        ):
            ref = send(
                name,
                payload,
                delay=delay,
                at=at,
                tz=tz,
                fold=fold,
                id=id,
                queue=where,
                on_conflict=on_conflict,
                tries=tries,
                retention=retention,
                timeout=timeout,
                deadline=deadline,
                tags=tags or None,
                unique=unique if unique_for is None else Unique(key=unique, until="window", window=unique_for),
                encrypted=encrypted or None,
            )
        deed.outcome = f"{ref.outcome} {ref.id}"
    _print_reference(ref, as_json=json)


def cancel(
    context: typer.Context,
    id: JobId,
    queue: Queue = None,
    running: Annotated[bool, typer.Option("--running", help="Ask the job to stop if it is running.")] = False,
    json: Json = False,
) -> None:
    """Cancel a job, unless a worker already has it.

    delayq cancel order-42 --queue orders

    `cancelled` means that the job will not run, or not run again. Exit code 3: the id is unknown; 4: the job is
    running, failed or completed. With --running, the exit code is 0 if a running job was asked to stop.
    """
    session = session_of(context)
    where = session.queue_or_default(queue)
    with session.client() as client, session.audited("cancel", f"{id} in {where}") as deed:
        with (
            _refused(client, id, queue, where, as_json=json),
            unsure_change(id, where, partial(_print_outcome, id, where, as_json=json), as_json=json),
        ):
            deed.outcome = answer = client.cancel(id, queue=queue, running=running)
        if answer == "unknown" and queue is not None:
            check_queue_known(client, queue)
    is_asked = answer == "running" and running
    _print_answer(id, where, answer, is_refused=not is_asked, hints=CANCEL_HINTS, as_json=json)
    if is_asked and not session.quiet:
        print_note("The job is running, and was asked to stop.")


def run_now(
    context: typer.Context,
    id: Annotated[str | None, typer.Argument(metavar="ID", help="Id of the job.", show_default=False)] = None,
    queue: Queue = None,
    waiting_for_code: Annotated[
        bool,
        typer.Option(
            "--waiting-for-code",
            help="Instead of one job, run all jobs that wait for a newer release. A job waits if a worker did not know "
            "its name or a field of its payload. Without --queue, this applies to all queues.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Run a scheduled job now. In a paused queue, the job runs after the queue is resumed.

    delayq run-now order-42 --queue orders

    After a deployment, --waiting-for-code runs the jobs that waited for the new release.

    Exit code 3: the id is unknown; 4: the job is running, failed or completed.
    """
    session, tell = session_of(context), partial(_print_reference, as_json=json)
    if (id is None) != waiting_for_code:
        raise InvalidInput(
            "The id of the job is missing." if id is None else "An id and --waiting-for-code are both given.",
            hint="Give an id, or --waiting-for-code for all jobs that wait for a new release.",
        )
    if id is None:
        from delayq.cli.commands.run_waiting import run_waiting  # only this option needs searches

        run_waiting(session, queue, tell, as_json=json)
        return
    where = session.queue_or_default(queue)
    with session.client() as client, session.audited("run-now", f"{id} in {where}") as deed:
        with _refused(client, id, queue, where, as_json=json), unsure_change(id, where, tell, as_json=json):
            ref = client.run_now(id, queue=queue)
        deed.outcome = ref.outcome
    tell(ref)


def reschedule(
    context: typer.Context,
    id: JobId,
    delay: In = None,
    at: At = None,
    tz: Tz = None,
    fold: Fold = None,
    queue: Queue = None,
    json: Json = False,
) -> None:
    """Change the due time of a scheduled or ready job.

    delayq reschedule order-42 --in 2h --queue orders

    Exit code 3: the id is unknown; 4: the job is running, failed or completed.
    """
    if delay is None and at is None:
        raise InvalidInput("The new due time is missing.", hint="Add --in 15m or --at 2026-11-21T15:00:00Z.")
    session = session_of(context)
    where = session.queue_or_default(queue)
    with session.client() as client, session.audited("reschedule", f"{id} in {where}") as deed:
        tell = partial(_print_reference, as_json=json)
        with _refused(client, id, queue, where, as_json=json), unsure_change(id, where, tell, as_json=json):
            ref = client.reschedule(id, queue=queue, delay=delay, at=at, tz=tz, fold=fold)
        deed.outcome = ref.outcome
    _print_reference(ref, as_json=json)


def archive(context: typer.Context, id: JobId, queue: Queue = None, reason: Reason = "", json: Json = False) -> None:
    """Move a scheduled or ready job to the failed jobs, where `failed retry` can start it again.

    delayq archive order-42 --queue orders --reason 'the shop is closed'

    Exit code 3: the id is unknown; 4: the job is running, failed or completed.
    """
    session = session_of(context)
    where = session.queue_or_default(queue)
    with session.client() as client, session.audited("archive", f"{id} in {where}", reason=reason) as deed:
        with (
            _refused(client, id, queue, where, as_json=json),
            unsure_change(id, where, partial(_print_outcome, id, where, as_json=json), as_json=json),
        ):
            deed.outcome = answer = client.archive(id, queue=queue, reason=reason)
        if answer == "unknown" and queue is not None:
            check_queue_known(client, queue)
    _print_answer(id, where, answer, hints=ARCHIVE_HINTS, as_json=json)


@contextmanager
def _conflict(id: str | None, queue: str, *, as_json: bool) -> Iterator[None]:
    """If the id or the unique key is taken, re-raise Conflict. With `as_json`, print the outcome as JSON first."""
    try:
        yield
    except Conflict:
        if as_json:
            print_json(OutcomeShape(id or "", queue, "conflict"))
        raise


@contextmanager
def _refused(client: DelayQ, id: str, queue: str | None, where: str, *, as_json: bool) -> Iterator[None]:
    """If the job is unknown, or its state does not allow the change, re-raise the error.

    `as_json`: print the answer as JSON before the error is raised again. `queue`: the queue that the user named; if
    this queue is unknown too, QueueNotFound is raised instead. `where`: the queue of the job.
    """
    try:
        yield
    except FoundElsewhere:
        if as_json:
            print_json(OutcomeShape(id, where, "unknown"))
        raise
    except (JobNotFound, JobRunning, JobHasFailed, JobFinished) as error:
        if isinstance(error, JobNotFound) and queue is not None:
            check_queue_known(client, queue)
        if as_json:
            print_json(OutcomeShape(id, where, _ANSWERS[type(error)]))
        raise


@contextmanager
def _sending(
    session: CliSession, app: str | None, name: str, payload: bytes | None, queue: str | None
) -> Iterator[tuple[Callable[..., JobRef], str]]:
    """Yield the function that sends the job, and the queue of the job.

    `queue` decides, if given. Otherwise, the queue comes from the declaration (only with --app), then from a route,
    then from the settings.
    """
    if app is not None:
        from delayq.cli.declared_jobs import queue_of_declared  # only --app needs the job API, which is slow to import
        from delayq.jobs.dispatch import dispatch

        declared = queue_of_declared(session, app, name, payload)
        yield dispatch, queue or declared
        return
    settings = session.with_server(session.routed(name))
    session.tell_waiting()
    with DelayQ(settings=settings) as client:
        yield client.schedule, queue or settings.queue


def _print_reference(ref: JobRef, *, as_json: bool) -> None:
    if as_json:
        print_json(_shape_of(ref))
    else:
        due = f", due {format_instant(ref.due_ms)}" if ref.due_ms is not None else ""
        outcome = "" if ref.outcome == ref.state else f"{ref.outcome}: "
        print_text(f"{ref.id}  {outcome}{ref.state} in queue {ref.queue}{due}")


def _shape_of(ref: JobRef) -> ScheduledJobShape | MovedJobShape:
    if not ref.name:
        return MovedJobShape.of(id=ref.id, queue=ref.queue, state=ref.state, due_ms=ref.due_ms, outcome=ref.outcome)
    return ScheduledJobShape.of(
        id=ref.id, name=ref.name, queue=ref.queue, state=ref.state, due_ms=ref.due_ms, outcome=ref.outcome
    )


def _print_outcome(id: str, queue: str, answer: Answer, *, as_json: bool) -> None:
    if as_json:
        print_json(OutcomeShape(id, queue, answer))
    else:
        print_text(f"{id}  {answer}")


def _print_answer(
    id: str,
    queue: str,
    answer: Answer,
    *,
    is_refused: bool = True,
    hints: Mapping[Answer, str],
    as_json: bool,
) -> None:
    """Print an answer. After a refusal, print the next step on stderr and exit with the code of the answer."""
    _print_outcome(id, queue, answer, as_json=as_json)
    if answer in REFUSED and is_refused:
        if answer in hints:
            print_note(hints[answer].format(id=id, queue=queue))
        raise typer.Exit(REFUSED[answer])
