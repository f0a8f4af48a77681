"""Commands that run for long: work, move."""

import logging
import signal
import sys
from typing import Annotated

import typer

from delayq.cli.options import App
from delayq.cli.session import session_of
from delayq.core.display import mask_url
from delayq.core.errors import ConfigError
from delayq.core.names import check_queue
from delayq.jobs.application import load_application
from delayq.jobs.function import registry
from delayq.settings.model import Settings
from delayq.worker.options import WorkerOptions
from delayq.worker.sidecar import run_all_loops
from delayq.worker.wiring import work as run_worker


def work(
    context: typer.Context,
    app: App = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            metavar="QUEUE,…",
            help="Queues to serve, the first one first [those of the jobs].",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[int, typer.Option("--processes", min=1, help="Child processes.")] = 1,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Jobs that a child runs at a time.")] = 1,
    no_mover: Annotated[
        bool, typer.Option("--no-mover", help="Run no mover and janitor; `delayq move` runs them elsewhere.")
    ] = False,
) -> None:
    """Run a worker until SIGTERM or Ctrl-C. What runs then may finish.

    delayq work --app shop.jobs
    """
    settings = session_of(context).settings
    name = app or settings.app
    if not name:
        raise ConfigError(
            "No application is named.",
            hint="Name the module of your jobs: --app shop.jobs, or DELAYQ_APP.",
            field="app",
        )
    _log_to_stderr()
    load_application(name)
    queues = [check_queue(part.strip()) for part in queue.split(",")] if queue else registry.queues()
    options = WorkerOptions(
        queues=queues or [settings.queue], processes=processes, threads=threads, with_loops=not no_mover
    )
    _tell(settings, f"working on {', '.join(options.queues)}")
    raise typer.Exit(run_worker(settings, options, registry))


def move(context: typer.Context) -> None:
    """Run the mover, the janitor and the relay without a worker, until SIGTERM or Ctrl-C."""
    settings = session_of(context).settings
    _log_to_stderr()
    _tell(settings, "moving what is due in all queues")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    run_all_loops(settings, [], settings.lease / 1000, stopping=lambda: False)


def _tell(settings: Settings, what: str) -> None:
    """Say on stderr which server this is: a wrong one is the most frequent mistake."""
    print(f"delayq: {what}; Redis at {mask_url(settings.must_have_url())}", file=sys.stderr, flush=True)


def _log_to_stderr() -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
