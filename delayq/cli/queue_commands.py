"""Commands on queues: stats, activity, job-types, pause, resume, drain, clear, queue set, queue show, queue remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from delayq.cli.flags import (
    AnyQueue,
    Durability,
    Json,
    OneQueue,
    QueueName,
    Yes,
    duration,
    example,
    lease,
    one_of,
    queue_name,
    queue_names,
    session_of,
)
from delayq.core.job_types import ORDERS

if TYPE_CHECKING:
    from delayq.redis.given import QueueSettings

Length = Annotated[
    str | None, typer.Option("--for", metavar="D", help="How long; without it, until resumed.", callback=duration)
]
PauseReason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; goes to the audit log too.")]
OneOrAll = Annotated[
    str | None, typer.Argument(metavar="QUEUE", help="The queue's name; or --all.", callback=queue_name)
]
All = Annotated[bool, typer.Option("--all", help="All queues, also those that come.")]
BusyAbove = Annotated[
    int | None, typer.Option("--busy-above", metavar="N", min=1, help="Exit with 1 when a queue has N jobs to do.")
]
Minutes = Annotated[
    str | None,
    typer.Option("--span", metavar="D", help="Length of a span, in whole minutes; else 1m.", callback=duration),
]
Spans = Annotated[int | None, typer.Option("--spans", metavar="N", min=1, max=1440, help="How many spans; else 15.")]
Days = Annotated[
    int | None, typer.Option("--days", metavar="N", min=1, max=90, help="Day by day instead, for so many days.")
]
Hours = Annotated[int | None, typer.Option("--hours", metavar="N", min=1, max=24, help="The last N hours; else 24.")]
WholeDays = Annotated[int | None, typer.Option("--days", metavar="N", min=1, max=90, help="The last N days instead.")]
Sort = Annotated[
    str,
    typer.Option(
        "--sort", metavar="BY", help=f"By {', '.join(ORDERS)}; largest first.", callback=one_of("The order", *ORDERS)
    ),
]
Drained = Annotated[
    str | None, typer.Option("--queue", metavar="Q,…", help="These queues only; without it, all.", callback=queue_names)
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until no job runs.")]
WaitAtMost = Annotated[
    str | None,
    typer.Option("--timeout", metavar="D", help="Wait so long at most; then exit code 1.", callback=duration),
]
Why = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit log.")]
Lease = Annotated[
    str | None,
    typer.Option("--lease", metavar="D", help="Silence, 100ms to 1d, after which a worker is gone.", callback=lease),
]
Shards = Annotated[
    int | None, typer.Option("--shards", metavar="N", min=1, max=256, help="Spread it over so many shards.")
]


def add_to(app: typer.Typer) -> None:
    """Give `app` the commands of this module."""
    app.command("stats", epilog=example("delayq stats --json", "delayq stats --busy-above 1000"))(stats)
    app.command(
        "activity",
        epilog=example("delayq activity --queue orders --span 5m --spans 12", "delayq activity --days 90 --json"),
    )(activity)
    slow, failing = "delayq job-types --sort p99", "delayq job-types --days 90 --sort failure-rate"
    app.command("job-types", epilog=example(slow, failing))(job_types)
    app.command("pause", epilog=example("delayq pause orders --for 10m", "delayq pause --all"))(pause)
    app.command("resume", epilog=example("delayq resume orders", "delayq resume --all"))(resume)
    line = "delayq drain --wait --timeout 10m"
    app.command("drain", epilog=example(line, "delayq drain --queue orders,mails --wait"))(drain)
    app.command("clear", epilog=example("delayq clear --queue orders --yes"))(clear)
    queues = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    queues.callback(epilog=example("delayq queue set orders --lease 5s"))(_queue)
    change = example("delayq queue set orders --shards 4", "delayq queue set orders --durability replicas:1")
    queues.command("set", epilog=change)(queue_set)
    queues.command("show", epilog=example("delayq queue show orders"))(queue_show)
    queues.command("remove", epilog=example("delayq queue remove orders"))(queue_remove)
    app.add_typer(queues, name="queue")


def _queue() -> None:
    """What a queue keeps for itself."""


def stats(ctx: typer.Context, queue: AnyQueue = None, busy_above: BusyAbove = None, as_json: Json = False) -> None:
    """Show how many jobs are in which state.

    With --busy-above it watches over them: exit code 1 when a queue has so many jobs that are ready or run, and the
    listeners of your application (DELAYQ_APP) hear QueueBusy.
    """
    from delayq.cli.actions import look

    raise typer.Exit(look.stats(session_of(ctx), queue, busy_above, as_json=as_json))


def activity(
    ctx: typer.Context,
    queue: AnyQueue = None,
    span: Minutes = None,
    spans: Spans = None,
    days: Days = None,
    as_json: Json = False,
) -> None:
    """Show what happened in the last minutes, hours or days.

    How many jobs were scheduled, started, done, and how late and how long they were. Minutes are kept for a day,
    days (of UTC) for 90.
    """
    from delayq.cli.actions import activity as report

    report.activity(session_of(ctx), queue, span, spans, days, as_json=as_json)


def job_types(
    ctx: typer.Context,
    queue: AnyQueue = None,
    hours: Hours = None,
    whole_days: WholeDays = None,
    sort: Sort = "attempts",
    as_json: Json = False,
) -> None:
    """Show which job names run most, slowest, and fail most.

    Attempts of delayq's workers by job name: how many, how they ended, and how long they ran (p50 and p99, at most
    9 % off). The window is 24 hours, or that of --hours or --days, and the hour or day that has begun.
    """
    from delayq.cli.actions import activity as report

    report.job_types(session_of(ctx), queue, hours, whole_days, sort, as_json=as_json)


def pause(
    ctx: typer.Context,
    queue: OneOrAll = None,
    length: Length = None,
    all_: All = False,
    reason: PauseReason = "",
    as_json: Json = False,
) -> None:
    """Stop a queue, or with --all every one, until it is resumed.

    Nothing of it is started any more; scheduling goes on. `why`, `doctor` and the pages show the reason of
    --all.
    """
    from delayq.cli.actions import fleet, switch

    if name := switch.one_or_all(queue, all_):
        switch.pause(session_of(ctx), name, length, reason, as_json=as_json)
    else:
        fleet.pause_all(session_of(ctx), length, reason, as_json=as_json)


def resume(ctx: typer.Context, queue: OneOrAll = None, all_: All = False, as_json: Json = False) -> None:
    """Undo a pause; with --all the pause of everything."""
    from delayq.cli.actions import fleet, switch

    if name := switch.one_or_all(queue, all_):
        switch.resume(session_of(ctx), name, as_json=as_json)
    else:
        fleet.resume_all(session_of(ctx), as_json=as_json)


def drain(
    ctx: typer.Context,
    queue: Drained = None,
    wait: Wait = False,
    timeout: WaitAtMost = None,
    reason: Why = "",
    as_json: Json = False,
) -> None:
    """Let running jobs end and start no others.

    Pauses everything, or the queues of --queue. With --wait it ends when no job runs, or with exit code 1 and the ids
    of those that still run at --timeout. The pause holds until `delayq resume`, which is printed.
    """
    from delayq.cli.actions import drain as emptying
    from delayq.core.errors import InvalidInput

    if timeout is not None and not wait:
        raise InvalidInput(f"--timeout {timeout} says how long to wait.", hint="Say --wait too.")
    how = emptying.Wait(timeout) if wait else None
    raise typer.Exit(emptying.drain(session_of(ctx), queue.split(",") if queue else [], how, reason, as_json=as_json))


def clear(ctx: typer.Context, queue: OneQueue = None, yes: Yes = False, as_json: Json = False) -> None:
    """Drop every job that waits in a queue.

    What runs is left alone, and so is what has failed.
    """
    from delayq.cli.actions import switch

    switch.clear(session_of(ctx), queue, yes=yes, as_json=as_json)


def queue_set(
    ctx: typer.Context,
    queue: QueueName,
    lease: Lease = None,
    durability: Durability = None,
    shards: Shards = None,
    as_json: Json = False,
) -> None:
    """Change what a queue keeps for itself.

    Prints what is in force. Workers follow within seconds, other producers within a minute. Shards may be changed while
    the queue is in use: jobs that are there stay where they are.
    """
    from delayq.cli.actions import switch

    kept: QueueSettings = {"lease": lease, "durability": durability, "shards": shards}
    switch.queue_set(session_of(ctx), queue, kept, as_json=as_json)


def queue_show(ctx: typer.Context, queue: QueueName, as_json: Json = False) -> None:
    """Show what a queue keeps for itself.

    With the number of jobs in each of its shards.
    """
    from delayq.cli.actions import switch

    switch.queue_show(session_of(ctx), queue, as_json=as_json)


def queue_remove(ctx: typer.Context, queue: QueueName, as_json: Json = False) -> None:
    """Remove a queue that holds no jobs.

    Its name, settings and counters are forgotten. Refused (exit code 4) while it holds a job in any state, or while a
    live worker serves it. A job that is scheduled later makes the queue anew.
    """
    from delayq.cli.actions import switch

    switch.queue_remove(session_of(ctx), queue, as_json=as_json)
