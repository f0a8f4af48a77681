"""Commands that run something or look at the whole: work, move, up, down, demo, doctor, config show, scripts path."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from delayq.cli.flags import Apps, Json, NdJson, duration, example, session_of

Served = Annotated[
    str | None,
    typer.Option(
        "--connection", metavar="NAME", help="Serve this one of [connections]; also: delayq --connection NAME work."
    ),
]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        metavar="Q,…",
        help="Queues in strict order; may be repeated; without it, default and those of the jobs.",
    ),
]
Weighted = Annotated[
    bool,
    typer.Option(
        "--weighted",
        help="Draw the queue that goes first, by weight: --queue critical:6,default:3,low weighs 6, 3 and 1. "
        "Only with this is :6 a weight; else it is part of a name.",
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Stop after one job, or at once when there is none.")]
StopWhenEmpty = Annotated[bool, typer.Option("--stop-when-empty", help="Stop when nothing is ready.")]
StopWhenEmptyFor = Annotated[
    str,
    typer.Option(
        "--stop-when-empty-for", metavar="D", help="Stop when nothing was ready for so long.", callback=duration
    ),
]
Processes = Annotated[int, typer.Option("--processes", metavar="N", min=1, max=512, help="Processes that run jobs.")]
Threads = Annotated[
    int, typer.Option("--threads", metavar="N", min=1, max=512, help="Jobs at once in each; 1 keeps jobs apart.")
]
Timeout = Annotated[
    str | None,
    typer.Option("--timeout", metavar="D", help="How long a job may run that says nothing; 0s = without limit."),
]
Grace = Annotated[
    str | None,
    typer.Option("--grace", metavar="D", help="How long running jobs may go on after a stop was asked for: 25s."),
]
MaxJobs = Annotated[int, typer.Option("--max-jobs", metavar="N", min=0, help="Stop after so many jobs; 0 = never.")]
MaxTime = Annotated[
    str, typer.Option("--max-time", metavar="D", help="Stop after so long; 0s = never.", callback=duration)
]
Memory = Annotated[int, typer.Option("--memory", metavar="MB", min=0, help="Stop (exit code 12) above it; 0 = never.")]
Tries = Annotated[
    str | None, typer.Option("--tries", metavar="N", help="Attempts of jobs that say nothing; 0 = no limit.")
]
Backoff = Annotated[str | None, typer.Option("--backoff", metavar="D,…", help="Waits between attempts: 10s,1m,10m.")]
OldBackoff = Annotated[
    str | None, typer.Option("--delay", metavar="D,…", help="The same as --backoff; the old name of it in Laravel.")
]
Rest = Annotated[str, typer.Option("--rest", metavar="D", help="Pause after each job.", callback=duration)]
Sleep = Annotated[
    str,
    typer.Option(
        "--sleep",
        metavar="D",
        help="Longest wait between two looks; more than 1s counts as 1s. A job that comes ends the wait at once.",
        callback=duration,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Log warnings and errors only; with --json not how jobs ended.")]
Events = Annotated[
    bool, typer.Option("--json", help="Print what happens as JSON, one event a line; jobs' own prints go to stderr.")
]
WorkerName = Annotated[str | None, typer.Option("--name", metavar="N", help="Its name, instead of the host's.")]
NoMover = Annotated[bool, typer.Option("--no-mover", help="Without mover and janitor; `delayq move` runs elsewhere.")]
MoveOnce = Annotated[bool, typer.Option("--once", help="Move what is due, look after every queue once, and leave.")]
AllowEviction = Annotated[
    bool, typer.Option("--allow-eviction", help="Serve a Redis whose maxmemory-policy may throw jobs away.")
]
MetricsPort = Annotated[
    str | None,
    typer.Option(
        "--metrics-port",
        metavar="[HOST:]PORT",
        help="Show metrics there; a port alone = this machine only.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Work during maintenance too.")]
Now = Annotated[bool, typer.Option("--now", help="Do not wait for the jobs of a running `up`.")]
WithOrigin = Annotated[bool, typer.Option("--origin", help="Show who set each.")]


def add_to(app: typer.Typer) -> None:
    """Give `app` the commands of this module."""
    app.command("work", epilog=example("delayq work --app shop.jobs --queue high,default"))(work)
    app.command("move", epilog=example("delayq move"))(move)
    app.command("up", epilog=example("delayq up --app shop.jobs"))(up)
    app.command("down", epilog=example("delayq down"))(down)
    app.command("demo", epilog=example("delayq demo"))(demo)
    app.command("doctor", epilog=example("delayq doctor --app shop.jobs"))(doctor)
    settings = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    settings.callback(epilog=example("delayq config show --origin"))(_config)
    settings.command("show", epilog=example("delayq config show --origin"))(config_show)
    app.add_typer(settings, name="config")
    scripts = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    scripts.callback(epilog=example("delayq scripts path"))(_scripts)
    scripts.command("path", epilog=example("delayq scripts path"))(scripts_path)
    app.add_typer(scripts, name="scripts")


def _config() -> None:
    """Show the settings in force."""


def _scripts() -> None:
    """Find the Lua scripts for clients in other languages."""


def work(
    ctx: typer.Context,
    app: Apps = None,
    connection: Served = None,
    queue: Queues = None,
    weighted: Weighted = False,
    once: Once = False,
    stop_when_empty: StopWhenEmpty = False,
    stop_when_empty_for: StopWhenEmptyFor = "0s",
    max_jobs: MaxJobs = 0,
    max_time: MaxTime = "0s",
    memory: Memory = 0,
    tries: Tries = None,
    backoff: Backoff = None,
    delay: OldBackoff = None,
    timeout: Timeout = None,
    grace: Grace = None,
    processes: Processes = 1,
    threads: Threads = 1,
    rest: Rest = "0s",
    sleep: Sleep = "1s",
    quiet: Quiet = False,
    as_json: Events = False,
    name: WorkerName = None,
    no_mover: NoMover = False,
    allow_eviction: AllowEviction = False,
    force: Force = False,
    metrics: MetricsPort = None,
) -> None:
    """Run jobs.

    TERM or Ctrl-C stops it after the running jobs, a second one at once. Mover and janitor run beside them.
    """
    from delayq.cli.actions import serve

    backoff = serve.one_word(backoff, delay)
    limits = serve.Limits(once, stop_when_empty, stop_when_empty_for, max_jobs, max_time, memory)
    size = serve.Size(processes, threads, not no_mover)
    wishes = serve.Wishes(None, tries, backoff, timeout, rest, sleep, name, size, allow_eviction, force, weighted)
    wishes = replace(wishes, queue=_in_order(queue), connection=connection, metrics_port=metrics, grace=grace)
    raise typer.Exit(serve.work(session_of(ctx), app or [], wishes, limits, quiet=quiet, as_json=as_json))


def _in_order(queues: list[str] | None) -> str | None:
    """`--queue a,b --queue c` as `a,b,c`."""
    return ",".join(queues) if queues else None


def move(
    ctx: typer.Context,
    once: MoveOnce = False,
    allow_eviction: AllowEviction = False,
    metrics_port: MetricsPort = None,
) -> None:
    """Run mover and janitor without a worker.

    What is due becomes ready, what was lost is found. Any number of them may run.
    """
    from delayq.cli.actions import serve

    raise typer.Exit(serve.move(session_of(ctx), once=once, allow_eviction=allow_eviction, metrics_port=metrics_port))


def up(
    ctx: typer.Context,
    app: Apps = None,
    queue: Queues = None,
    quiet: Quiet = False,
    allow_eviction: AllowEviction = False,
) -> None:
    """Run everything on the embedded server.

    Server, mover and janitor and, with --app, a worker, in this one process. Ctrl-C or `delayq down` ends it,
    also when the server ran before.
    """
    from delayq.cli.actions import local, serve

    wishes = serve.Wishes(queue=_in_order(queue), allow_eviction=allow_eviction)
    raise typer.Exit(local.up(session_of(ctx), app or [], wishes, quiet=quiet))


def down(ctx: typer.Context, now: Now = False, as_json: Json = False) -> None:
    """Stop the embedded server; its data stays.

    A running `delayq up` leaves first and finishes its jobs, unless this is called a second time or with --now.
    """
    from delayq.cli.actions import local

    local.down(session_of(ctx), now=now, as_json=as_json)


def demo(ctx: typer.Context) -> None:
    """Watch delayed jobs run for a few seconds.

    On a server of its own that leaves nothing behind.
    """
    from delayq.cli.actions import demo as show

    raise typer.Exit(show.run(session_of(ctx)))


def doctor(ctx: typer.Context, app: Apps = None, as_json: Json = False) -> None:
    """Find out why jobs do not run.

    The exit code is 1 when something is wrong.
    """
    from delayq.cli.actions import doctor as practice

    raise typer.Exit(practice.examine(session_of(ctx), app or [], as_json=as_json))


def config_show(ctx: typer.Context, origin: WithOrigin = False, as_json: NdJson = False) -> None:
    """Show every setting.

    --origin tells whether a flag, the environment, a file or the default set it.
    """
    from delayq.cli.actions import settings

    settings.show(session_of(ctx), with_origin=origin, as_json=as_json)


def scripts_path(ctx: typer.Context, as_json: Json = False) -> None:
    """Print the directory that holds the Lua scripts of this release.

    Programs in other languages read them there; docs/protocol.md says how to call each.
    """
    from delayq.cli.actions import scripts

    scripts.path(session_of(ctx), as_json=as_json)
