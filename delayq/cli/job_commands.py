"""Commands on jobs: schedule, cancel, archive, run-now, reschedule, show, list, upcoming."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

import typer

from delayq.cli.flags import (
    AnyQueue,
    Apps,
    At,
    Delay,
    Durability,
    Fold,
    JobId,
    Json,
    NamePattern,
    NdJson,
    OneQueue,
    Zone,
    duration,
    example,
    one_of,
    queue_name,
    session_of,
)

_ANSWERS: Final = ("keep", "replace", "postpone", "error")
_PLACES: Final = ("scheduled", "ready", "reserved", "failed", "completed")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The job's name, such as order.close.")]
Data = Annotated[str | None, typer.Option("--data", metavar="JSON|@FILE|-", help="The payload; - reads stdin.")]
OwnId = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="An id of your own; the same id is the same job.")
]
Queue = Annotated[
    str | None,
    typer.Option(
        "--queue",
        metavar="Q",
        help="The queue; default: what the job of --app declares, a route, or the queue of the settings.",
        callback=queue_name,
    ),
]
OnConflict = Annotated[
    str,
    typer.Option(
        "--on-conflict",
        metavar="|".join(_ANSWERS),
        help="When the id is taken.",
        callback=one_of("--on-conflict", *_ANSWERS),
        autocompletion=lambda: list(_ANSWERS),
    ),
]
Tries = Annotated[int | None, typer.Option("--tries", metavar="N", help="Attempts before it has failed; 0 = no limit.")]
Retention = Annotated[
    str | None, typer.Option("--retention", metavar="D", help="How long it is kept when done.", callback=duration)
]
Timeout = Annotated[
    str | None,
    typer.Option("--timeout", metavar="D", help="How long one attempt may take; 0s = no limit.", callback=duration),
]
Deadline = Annotated[
    str | None,
    typer.Option("--deadline", metavar="D|T", help="Do not start it later: 30m after it is due, or RFC 3339."),
]
UniqueKey = Annotated[
    str | None, typer.Option("--unique", metavar="KEY", help="At most one unfinished job has this key.")
]
UniqueFor = Annotated[
    str | None,
    typer.Option(
        "--unique-for",
        metavar="D",
        help="Lock --unique, or else the name with its payload, for D.",
        callback=duration,
    ),
]
Encrypted = Annotated[
    bool, typer.Option("--encrypted", help="Hide the payload from all who do not hold the key (DELAYQ_KEYS).")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it becomes the error message.")]
Running = Annotated[bool, typer.Option("--running", help="Ask a running job to stop; the answer stays 'running'.")]
StateName = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="|".join(_PLACES),
        help="Jobs in this state only.",
        callback=one_of("--state", *_PLACES),
        autocompletion=lambda: list(_PLACES),
    ),
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many.")]
Span = Annotated[str, typer.Option("--span", metavar="D", help="Length of one span.", callback=duration)]
Spans = Annotated[int, typer.Option("--spans", metavar="N", min=1, max=500, help="How many spans.")]


def add_to(app: typer.Typer) -> None:
    """Give `app` the commands of this module."""
    for name, (command, epilog) in _COMMANDS.items():
        app.command(name, epilog=epilog)(command)


def schedule(
    ctx: typer.Context,
    name: Name,
    in_: Delay = None,
    at: At = None,
    tz: Zone = None,
    fold: Fold = None,
    data: Data = None,
    job_id: OwnId = None,
    queue: Queue = None,
    on_conflict: OnConflict = "keep",
    tries: Tries = None,
    retention: Retention = None,
    timeout: Timeout = None,
    deadline: Deadline = None,
    unique: UniqueKey = None,
    unique_for: UniqueFor = None,
    encrypted: Encrypted = False,
    durability: Durability = None,
    app: Apps = None,
    as_json: Json = False,
) -> None:
    """Schedule a job for later. Prints its id.

    --in says how long from now, --at names a time; with neither it runs at once.

    With --app, or app in the settings, the job has the queue, delay, deadline, tags, unique key and encryption that the
    application declares for that name. Options of this command go first.
    """
    from delayq.cli.actions import produce
    from delayq.core.unique import unique_from

    given: dict[str, object] = {
        "delay": in_,
        "at": at,
        "tz": tz,
        "fold": fold,
        "id": job_id,
        "queue": queue,
        "tries": tries,
    }
    more: dict[str, object] = {"retention": retention, "encrypted": encrypted or None, "durability": durability}
    more |= {"timeout": timeout, "deadline": deadline, "unique": unique_from(unique, unique_for)}
    request = produce.Request(name, data, on_conflict, {**given, **more}, app or ())
    produce.schedule(session_of(ctx), request, as_json=as_json)


def cancel(
    ctx: typer.Context,
    job_id: JobId,
    queue: OneQueue = None,
    running: Running = False,
    durability: Durability = None,
    as_json: Json = False,
) -> None:
    """Make sure a job does not run.

    Prints cancelled, or why it was not: unknown (exit code 3), running, failed or finished (exit code 4).
    """
    from delayq.cli.actions import produce

    how = {"running": running, "durability": durability}
    raise typer.Exit(produce.cancel(session_of(ctx), job_id, queue, how, as_json=as_json))


def archive(
    ctx: typer.Context,
    job_id: JobId,
    queue: OneQueue = None,
    reason: Reason = "",
    durability: Durability = None,
    as_json: Json = False,
) -> None:
    """Put a waiting job among the failed.

    `failed retry` takes it up again. Prints archived, or why it was not: unknown (exit code 3), running, failed or
    finished (exit code 4).
    """
    from delayq.cli.actions import produce

    raise typer.Exit(produce.archive(session_of(ctx), job_id, queue, reason, durability, as_json=as_json))


def run_now(ctx: typer.Context, job_id: JobId, queue: OneQueue = None, as_json: Json = False) -> None:
    """Let a waiting job run at once."""
    from delayq.cli.actions import produce

    produce.run_now(session_of(ctx), job_id, queue, as_json=as_json)


def reschedule(
    ctx: typer.Context,
    job_id: JobId,
    in_: Delay = None,
    at: At = None,
    tz: Zone = None,
    fold: Fold = None,
    queue: OneQueue = None,
    durability: Durability = None,
    as_json: Json = False,
) -> None:
    """Give a waiting job another time."""
    from delayq.cli.actions import produce

    when = {"delay": in_, "at": at, "tz": tz, "fold": fold}
    produce.reschedule(session_of(ctx), job_id, queue, when, durability, as_json=as_json)


def why(ctx: typer.Context, job_id: JobId, queue: OneQueue = None, as_json: Json = False) -> None:
    """Say why a job has not run, and what to do about it."""
    from delayq.cli.actions import look

    look.why(session_of(ctx), job_id, queue, as_json=as_json)


def show(ctx: typer.Context, job_id: JobId, queue: OneQueue = None, as_json: Json = False) -> None:
    """Show everything known about one job."""
    from delayq.cli.actions import look

    look.show(session_of(ctx), job_id, queue, as_json=as_json)


def list_jobs(
    ctx: typer.Context,
    state: StateName = None,
    queue: AnyQueue = None,
    name: NamePattern = None,
    limit: Limit = 100,
    as_json: NdJson = False,
) -> None:
    """List jobs, state by state."""
    from delayq.cli.actions import look

    look.list_jobs(session_of(ctx), look.Wanted(state, queue, name, limit), as_json=as_json)


def upcoming(
    ctx: typer.Context, queue: AnyQueue = None, span: Span = "1m", spans: Spans = 60, as_json: NdJson = False
) -> None:
    """Show how many jobs fall due when."""
    from delayq.cli.actions import look

    look.upcoming(session_of(ctx), queue, span, spans, as_json=as_json)


_COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "schedule": (
        schedule,
        example(
            """delayq schedule order.close --in 15m --id order-42 --data '{"order_id": 42}'""",
            "delayq schedule report.send --at 2026-11-21T09:00 --tz Europe/Berlin --data @report.json",
        ),
    ),
    "cancel": (cancel, example("delayq cancel order-42 --queue orders")),
    "archive": (archive, example("delayq archive order-42 --queue orders --reason 'the shop is closed'")),
    "run-now": (run_now, example("delayq run-now order-42")),
    "reschedule": (reschedule, example("delayq reschedule order-42 --in 30m")),
    "show": (show, example("delayq show order-42 --json")),
    "why": (why, example("delayq why order-42 --queue orders")),
    "list": (list_jobs, example("delayq list --state scheduled --name 'order.*' --limit 20")),
    "upcoming": (upcoming, example("delayq upcoming --queue orders --span 1h --spans 24")),
}
