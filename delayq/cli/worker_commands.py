"""Commands on workers: workers (quiet, resume, stop, restart), top, restart, maintenance; and listen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from delayq.cli.flags import AnyQueue, Json, NdJson, duration, example, session_of

Length = Annotated[
    str | None, typer.Option("--for", metavar="D", help="How long; without it, until ended.", callback=duration)
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for whoever looks.")]


WorkerName = Annotated[str, typer.Argument(metavar="NAME", help="A name from `delayq workers`.")]
OrderReason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the audit log.")]
Watched = Annotated[
    list[Path] | None, typer.Option("--watch", metavar="DIR", help="Where the code is; may be repeated.")
]
Every = Annotated[str, typer.Option("--every", metavar="D", help="How often it looks, 100ms to 1h.", callback=duration)]
ShowOnce = Annotated[bool, typer.Option("--once", help="Show it one time and leave.")]


def add_to(app: typer.Typer) -> None:
    """Give `app` the commands of this module."""
    fleet = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
    fleet.callback(epilog=example("delayq workers", "delayq workers --json", "delayq workers quiet NAME"))(workers)
    for order in (quiet, resume, stop, restart_one):
        name = order.__name__.removesuffix("_one")
        fleet.command(name, epilog=example(f"delayq workers {name} dq:web-1:4711:9f3c2a1b"))(order)
    app.add_typer(fleet, name="workers")
    app.command("top", epilog=example("delayq top", "delayq top --json"))(top)
    passing = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command("listen", epilog=example("delayq listen --app shop.jobs"), context_settings=passing)(listen)
    app.command("restart", epilog=example("delayq restart"))(restart)
    maintenance = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    maintenance.callback(epilog=example("delayq maintenance on --for 10m --reason 'new schema'"))(_maintenance)
    maintenance.command("on", epilog=example("delayq maintenance on --for 10m --reason 'new schema'"))(maintenance_on)
    maintenance.command("off", epilog=example("delayq maintenance off"))(maintenance_off)
    maintenance.command("show", epilog=example("delayq maintenance show --json"))(maintenance_show)
    app.add_typer(maintenance, name="maintenance")


def _maintenance() -> None:
    """Keep workers from fetching for a while."""


def workers(ctx: typer.Context, as_json: NdJson = False) -> None:
    """List the workers that are alive, and what each runs."""
    from delayq.cli.actions import fleet

    if ctx.invoked_subcommand is None:
        fleet.workers(session_of(ctx), as_json=as_json)


def quiet(ctx: typer.Context, name: WorkerName, reason: OrderReason = "", as_json: Json = False) -> None:
    """Let one worker end its jobs and take no new ones.

    It stays there, quiet, until `delayq workers resume`. NAME is that of one of its processes, as `delayq workers`
    lists them. A hint reaches the worker at once; one that misses it sees the order within seconds.
    """
    _order(ctx, name, "quiet", reason, as_json=as_json)


def resume(ctx: typer.Context, name: WorkerName, reason: OrderReason = "", as_json: Json = False) -> None:
    """Let a quiet worker take jobs again."""
    _order(ctx, name, "resume", reason, as_json=as_json)


def stop(ctx: typer.Context, name: WorkerName, reason: OrderReason = "", as_json: Json = False) -> None:
    """Stop one worker after its jobs, with exit code 0.

    What still runs at the end of its grace is interrupted and starts again elsewhere, uncounted. A process manager that
    restarts workers always starts it again: make it quiet then, or stop it there.
    """
    _order(ctx, name, "stop", reason, as_json=as_json)


def restart_one(ctx: typer.Context, name: WorkerName, reason: OrderReason = "", as_json: Json = False) -> None:
    """Let one worker leave after its jobs, to be started again.

    Its process manager has to do that, as after `delayq restart`.
    """
    _order(ctx, name, "restart", reason, as_json=as_json)


def _order(ctx: typer.Context, name: str, order: str, reason: str, *, as_json: bool) -> None:
    from delayq.cli.actions import fleet

    fleet.order(session_of(ctx), name, order, reason, as_json=as_json)


def top(
    ctx: typer.Context,
    queue: AnyQueue = None,
    every: Every = "1s",
    once: ShowOnce = False,
    as_json: Json = False,
) -> None:
    """Watch queues, rates, workers, what runs and what failed.

    Ends with Ctrl-C. With --once or --json, or without a terminal, it shows everything one time.
    """
    from delayq.cli.actions import top as view

    view.top(session_of(ctx), queue, every, once=once, as_json=as_json)


def listen(ctx: typer.Context, watch: Watched = None) -> None:
    """Run a worker that is started anew whenever the code changes.

    For development. Takes every option of `delayq work`. It watches Python files and settings below the folder it is
    started in, or those of --watch; a worker that runs a job ends it first.
    """
    from delayq.cli.actions import listen as ear

    raise typer.Exit(ear.listen(session_of(ctx), watch or [Path()], ctx.args))


def restart(ctx: typer.Context, as_json: Json = False) -> None:
    """Let every worker leave after its job.

    That is for new code: whatever keeps the workers running (systemd, a container) starts them again. Workers started
    after this call stay.
    """
    from delayq.cli.actions import fleet

    fleet.restart(session_of(ctx), as_json=as_json)


def maintenance_on(ctx: typer.Context, length: Length = None, reason: Reason = "", as_json: Json = False) -> None:
    """Start maintenance: workers end what they run and fetch nothing more.

    Scheduling goes on. A worker started with --force works all the same.
    """
    from delayq.cli.actions import fleet

    fleet.maintenance_on(session_of(ctx), length, reason, as_json=as_json)


def maintenance_off(ctx: typer.Context, as_json: Json = False) -> None:
    """End maintenance: workers fetch again within a second or two."""
    from delayq.cli.actions import fleet

    fleet.maintenance_off(session_of(ctx), as_json=as_json)


def maintenance_show(ctx: typer.Context, as_json: Json = False) -> None:
    """Show what holds for all workers.

    Maintenance, a pause of everything, the last call to restart.
    """
    from delayq.cli.actions import fleet

    fleet.show(session_of(ctx), as_json=as_json)
