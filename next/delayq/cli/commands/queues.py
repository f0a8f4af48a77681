"""Commands for queues: stats, pause, resume, clear, and the group `queue`."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Annotated, Final

import typer

from delayq.cli.commands.workers import note_switches, read_control
from delayq.cli.families import PLAIN
from delayq.cli.options import For, Json, ListenersOf, MaybeQueue, OfQueue, QueueName, WhichQueue, Yes
from delayq.cli.output import confirm, print_json, print_note, print_table, print_text
from delayq.cli.progress import Progress
from delayq.cli.session import check_queue_known, is_queue_known, session_of
from delayq.cli.unconfirmed import unsure_change
from delayq.client import DelayQ
from delayq.core.display import did_you_mean, several
from delayq.core.errors import CallRefused, InvalidInput, NodeError, QueueInUse, QueueNotFound
from delayq.core.events import QueueBusy
from delayq.core.exit_codes import ExitCode
from delayq.core.json_shapes.answers import DeletedShape, JobIdShape, QueueOutcomeShape
from delayq.core.json_shapes.queues import PauseShape, QueueShape, StatsShape, UnknownQueueShape
from delayq.core.json_shapes.workers import ControlShape
from delayq.core.listeners import emit
from delayq.core.times import duration_ms, format_duration, format_instant, rough_duration
from delayq.core.views import HOLDS_TEXT, DayCounts, QueueStats, QueueView

LOOK_EVERY: Final = 0.2
"""Seconds between two reads of the numbers of jobs, while `--wait` waits for workers."""

IDLE_LOOKS: Final = 2
"""Number of reads in a row that must find no reserved job."""

MAX_TOLD: Final = 20
"""Maximum number of jobs to list if workers still have jobs after `--wait`."""

UNKNOWN: Final = "-"
"""Text that is printed in place of each number of a queue that cannot be read."""

All = Annotated[bool, typer.Option("--all", help="Instead of one queue, pause or resume all workers.")]

queue = typer.Typer(help="One queue: set or show its settings, or remove the queue.", no_args_is_help=True, **PLAIN)


def stats(
    context: typer.Context,
    queue: OfQueue = None,
    busy_above: Annotated[
        int | None,
        typer.Option(
            "--busy-above", min=0, help="Exit with code 1 if a queue has more than N ready jobs.", metavar="N"
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(
            "--days",
            min=1,
            max=90,
            help="Also show how many jobs were scheduled, acknowledged, failed, … on each of the last N days.",
            metavar="N",
        ),
    ] = None,
    app: ListenersOf = None,
    json: Json = False,
) -> None:
    """Count the jobs of each queue by state.

    Exit code 1: a queue could not be read, or has more ready jobs than --busy-above. With --app, the listeners of
    QueueBusy in the module of --app are called for each queue with more ready jobs than --busy-above.

    delayq stats --queue orders --days 7
    """
    if app is not None and busy_above is None:
        raise InvalidInput(
            "--app belongs to --busy-above.", hint="Add --busy-above N, or leave out --app.", field="app"
        )
    session = session_of(context)
    if app is not None:
        from delayq.cli.application import load_listeners  # imports the job API, which other commands do not need

        load_listeners(session, app)
    with session.client() as client:
        if queue is not None:
            check_queue_known(client, queue)
        found = _stats_of_all(client) if queue is None else client.stats(queue)
        readable = [one.queue for one in found if not one.error]
        history = {name: client.history(name, days=days) for name in readable} if days else {}
        is_partial = len(readable) < len(found)
        control = read_control(client) if queue is None and not is_partial else None
    if json:
        print_json(StatsShape.of(found, history))
    else:
        _print_counts(found)
        if days:
            _print_days(history)
    if control is not None:
        note_switches(control)
    if not found and not session.quiet:
        print_note("No queue is known yet; the first `delayq schedule` creates one.")
    busy = [] if busy_above is None else [one.queue for one in found if one.ready > busy_above]
    for one in found:
        if busy_above is not None and one.ready > busy_above:
            emit(QueueBusy(one.queue, one.ready, busy_above))
    if busy:
        print_note(f"More than {busy_above:,} jobs are ready in: {', '.join(busy)}.")
    if busy or any(one.error for one in found):
        raise typer.Exit(ExitCode.FAILED)


def _stats_of_all(client: DelayQ) -> list[QueueStats]:
    try:
        return client.stats()
    except NodeError as error:
        raise type(error)(
            f"The list of queues cannot be read. {error.message}",
            hint="`delayq stats --queue NAME` still works for a queue whose node answers.",
        ) from error


def pause(
    context: typer.Context,
    queue: MaybeQueue = None,
    all: All = False,
    duration: For = None,
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            metavar="TEXT",
            help="Reason, for the audit log. With --all, `workers` and `why` show the reason.",
            show_default=False,
        ),
    ] = "",
    wait: Annotated[
        str | None,
        typer.Option(
            "--wait",
            metavar="DURATION",
            help="Wait up to this long until workers have no job of the queue, or with --all no job at all.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Pause a queue, or all workers. Running jobs continue. A queue can be paused before its first job.

    Exit code 1: after --wait, workers still have jobs of the queue (with --all: any jobs), or a queue cannot be read.

    delayq pause orders --for 1h --reason 'the bank is closed' --wait 1m
    """
    _check_target(queue, is_all=all)
    patience = None if wait is None else duration_ms(wait, field="wait") / 1000
    session = session_of(context)
    name = session.queue_or_default(queue)
    with session.client() as client:
        if queue is not None and not session.quiet and not is_queue_known(client, queue):
            known = did_you_mean(queue, client.queues())
            end = f"`delayq resume {queue}`" if duration is None else "the pause ends"
            print_note(f"The queue {queue} is new. Its jobs wait until {end}. {known}".rstrip())
        with session.audited("pause", "all workers" if all else name, reason=reason):
            shape: PauseShape | ControlShape
            if all:
                control = client.pause_all(duration=duration, reason=reason)
                until_ms, shape = control.paused_until_ms, ControlShape.of(control)
            else:
                until_ms = client.pause(name, duration=duration)
                shape = PauseShape.of(name, until_ms)
        running = [] if patience is None else _wait_until_idle(client, None if all else name, patience)
    if json:
        print_json(shape if patience is None else shape.with_running(running))
    else:
        until = f" until {format_instant(until_ms)}" if until_ms else ""
        print_text(f"{'all workers' if all else name}  paused{until}")
        for job in running:
            print_text(f"{job.id}  runs in queue {job.queue}")
    if running:
        end = f"delayq resume {'--all' if all else name}"
        of_queue = "" if all else " of this queue"
        print_note(
            f"After {wait}, workers still have jobs{of_queue}. The pause stays in force; `{end}` ends the pause."
        )
        raise typer.Exit(ExitCode.FAILED)


def resume(context: typer.Context, queue: MaybeQueue = None, all: All = False, json: Json = False) -> None:
    """Resume a queue, or all workers. With --all, a queue that was paused by name stays paused.

    delayq resume orders
    """
    _check_target(queue, is_all=all)
    session = session_of(context)
    name = session.queue_or_default(queue)
    still: list[str] = []
    unread: list[str] = []
    shape: PauseShape | ControlShape
    with session.client() as client:
        if queue is not None:
            with _refused(queue, as_json=json):
                check_queue_known(client, queue)
        with session.audited("resume", "all workers" if all else name):
            if all:
                shape = ControlShape.of(client.resume_all())
                found = client.stats()
                still = [one.queue for one in found if one.paused]
                unread = [one.queue for one in found if one.error]
            else:
                client.resume(name)
                shape = PauseShape.of(name, None)
    if json:
        print_json(shape)
    else:
        print_text(f"{'all workers' if all else name}  resumed")
    if still:
        print_note(f"These queues were paused by name and stay paused: {', '.join(still)}.")
    if unread:
        print_note(f"These queues cannot be read, and may be paused by name: {', '.join(unread)}.")


def clear(context: typer.Context, queue: WhichQueue = None, yes: Yes = False, json: Json = False) -> None:
    """Delete all scheduled and ready jobs of a queue. Reserved, failed and completed jobs stay.

    delayq clear --queue orders --yes
    """
    session = session_of(context)
    name = session.queue_or_default(queue)
    with session.client() as client:
        with _refused(name, as_json=json):
            check_queue_known(client, name)
        (found,) = client.stats(name)
        confirm(
            f"Delete {several(found.scheduled + found.ready, 'scheduled or ready job')} of the queue {name}", yes=yes
        )
        with session.audited("clear", name) as deed:
            deleted = client.clear(name, progress=Progress("deleted").tell)
            deed.outcome = f"{deleted} deleted"
    if json:
        print_json(DeletedShape(name, deleted))
    else:
        print_text(f"{name}  {several(deleted, 'job')} deleted")


@queue.command("set")
def set_queue(
    context: typer.Context,
    queue: QueueName,
    lease: Annotated[
        str | None,
        typer.Option(
            "--lease",
            metavar="DURATION",
            help="How long a job still belongs to a worker that no longer renews the lease. After that, another worker "
            "gets the job.",
        ),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards",
            metavar="N",
            help="Number of parts into which the queue is divided, 1 to 64. You can change it only while the queue has "
            "no jobs, and a relay has handled the records of its ended jobs. After a change, the workers of the queue "
            "exit as after `delayq restart`.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Set the lease or the number of shards of a queue, or both.

    Exit code 4: --shards is refused, because the queue has jobs or unhandled records of ended jobs, or because another
    command is changing the number.

    delayq queue set orders --lease 2m
    """
    session = session_of(context)
    with session.client() as client, session.audited("queue set", queue) as deed:
        tell = partial(_print_view, as_json=json)
        check = "delayq queue show {queue}"
        with (
            _refused(queue, as_json=json),
            unsure_change("", queue, tell, as_json=json, check=check, has_hint=shards is not None),
        ):
            view = client.queue_set(queue, lease=lease, shards=shards)
        deed.outcome = ", ".join(f"{name} {value}" for name, value in (("lease", lease), ("shards", shards)) if value)
    _print_view(view, as_json=json)


@queue.command("show")
def show_queue(context: typer.Context, queue: QueueName, json: Json = False) -> None:
    """Show the settings of a queue, and the number of jobs in each state.

    delayq queue show orders
    """
    with session_of(context).client() as client:
        try:
            view = client.queue_show(queue)
        except QueueNotFound:
            if json:
                print_json(UnknownQueueShape(queue))
            raise
        _print_view(view, as_json=json)


@queue.command("remove")
def remove_queue(context: typer.Context, queue: QueueName, json: Json = False) -> None:
    """Remove an empty queue.

    Exit code 4: the queue has jobs or unhandled records of ended jobs, or another command is changing the number of
    its shards.

    delayq queue remove orders
    """
    session = session_of(context)
    with session.client() as client, _refused(queue, as_json=json):
        check_queue_known(client, queue)
        with session.audited("queue remove", queue):
            client.queue_remove(queue)
    if json:
        print_json(QueueOutcomeShape(queue, "removed"))
    else:
        print_text(f"{queue}  removed")


@contextmanager
def _refused(queue: str, *, as_json: bool) -> Iterator[None]:
    """If the queue is unknown or in use, print the outcome as JSON if `as_json` is set, and re-raise the error."""
    try:
        yield
    except (QueueNotFound, QueueInUse) as error:
        if as_json:
            print_json(QueueOutcomeShape(queue, "unknown" if isinstance(error, QueueNotFound) else "refused"))
        raise


def _check_target(queue: str | None, *, is_all: bool) -> None:
    if queue is not None and is_all:
        raise InvalidInput(f"The queue {queue!r} and --all are both given.", hint="Leave out one of them.")


def _wait_until_idle(client: DelayQ, queue: str | None, patience: float) -> list[JobIdShape]:
    """Wait up to `patience` s until a queue, or every queue, has no reserved job. Return up to MAX_TOLD reserved jobs.

    Two reads in a row must find no reserved job, because a worker may receive another job by a fetch that began before
    the pause. Raises CallRefused if a queue cannot be read when the time is over.
    """
    ends_at = time.monotonic() + patience
    progress = Progress("still running")
    idle_looks = 0
    while True:
        found = client.stats(queue)
        busy = {one.queue: one.reserved for one in found if one.reserved}
        unread = [one for one in found if one.error]
        idle_looks = 0 if busy or unread else idle_looks + 1
        if idle_looks == IDLE_LOOKS:
            return []
        if unread and time.monotonic() >= ends_at:
            first = unread[0]
            raise CallRefused(f"The pause is in force, but the queue {first.queue!r} cannot be read. {first.error}")
        if busy and time.monotonic() >= ends_at:
            jobs = [job for name in busy for job in islice(client.iter_jobs("reserved", queue=name), MAX_TOLD)]
            return [JobIdShape(job.id, job.queue) for job in jobs[:MAX_TOLD]]
        progress.tell(sum(busy.values()))
        time.sleep(LOOK_EVERY)


def _print_counts(found: Sequence[QueueStats]) -> None:
    rows = [
        (one.queue, *[UNKNOWN] * 5, "", one.error)
        if one.error
        else (
            one.queue,
            one.scheduled,
            one.ready,
            one.reserved,
            one.failed,
            one.completed,
            rough_duration(one.overdue_oldest_ms) if one.overdue_oldest_ms else "",
            "paused" if one.paused else "",
        )
        for one in found
    ]
    print_table(("QUEUE", "SCHEDULED", "READY", "RESERVED", "FAILED", "COMPLETED", "OVERDUE", ""), rows)


def _print_days(history: Mapping[str, Sequence[DayCounts]]) -> None:
    events = list(dict.fromkeys(event for days in history.values() for day in days for event in day.counters))
    rows = [
        (name, day.day, *[day.counters.get(event, 0) for event in events])
        for name, days in history.items()
        for day in days
    ]
    print_text("")
    print_table(("QUEUE", "DAY", *[event.upper() for event in events]), rows)


def _print_view(view: QueueView, *, as_json: bool) -> None:
    if as_json:
        print_json(QueueShape.of(view))
        return
    pause = "" if view.paused_until_ms is None else ", paused"
    until = f" until {format_instant(view.paused_until_ms)}" if view.paused_until_ms else ""
    shards = f", {view.shards} shards" if view.shards > 1 else ""
    print_text(f"{view.queue}  lease {format_duration(view.lease_ms)}{shards}{pause}{until}")
    for name, count in view.holds.items():
        if count:
            print_text(f"  {count:,} {HOLDS_TEXT.get(name, name)}")
