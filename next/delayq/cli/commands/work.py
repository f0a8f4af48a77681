"""Long-running commands: work, move."""

import logging
import os
import signal
import sys
import threading
from typing import Annotated

import typer

from delayq.backends.registry import backend_of
from delayq.cli.application import name_of_application, prepare_application
from delayq.cli.logging import LogFormat, begin_logging, settle_logging, writes_json
from delayq.cli.options import App, Queues
from delayq.cli.output import print_json, print_note, print_text
from delayq.cli.session import CliSession, embedded_of, session_of
from delayq.cli.streams import drop_lost_output
from delayq.core.display import several
from delayq.core.errors import InvalidInput
from delayq.core.exit_codes import ExitCode
from delayq.core.full_pipes import PATIENCE, takes_output
from delayq.core.json_shapes.workers import MoveShape
from delayq.core.names import check_host
from delayq.core.queue_order import parse_queues, parse_weights, strict
from delayq.core.queue_order import weighted as weighted_order
from delayq.core.times import duration_ms
from delayq.jobs.application import (
    check_served,
    connections_elsewhere,
    load_application,
    queues_of_application,
    settings_of_application,
)
from delayq.jobs.registry import registry
from delayq.settings.model import Settings
from delayq.worker.forking import is_ignored, without_effect
from delayq.worker.options import WorkerOptions
from delayq.worker.sidecar import LAST_PAGE, move_once
from delayq.worker.sidecar import move as run_mover
from delayq.worker.wiring import work as run_worker

AllowEviction = Annotated[
    bool, typer.Option("--allow-eviction", help="Accept a Redis that evicts keys, and so may lose jobs.")
]
JsonLines = Annotated[bool, typer.Option("--json", help="Write log lines as JSON.")]


def work(
    context: typer.Context,
    app: App = None,
    queue: Queues = None,
    weighted: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE:N,…", help="Queues to serve in random order by weight: orders:3,mail:1.", show_default=False
        ),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Number of child processes.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Number of jobs that a child runs at a time.")] = 1,
    once: Annotated[bool, typer.Option("--once", help="Run one job if one is ready, then exit.")] = False,
    max_jobs: Annotated[
        int | None, typer.Option(min=1, help="Exit after this number of jobs.", show_default=False)
    ] = None,
    max_time: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Exit after this time.", show_default=False)
    ] = None,
    stop_when_empty: Annotated[
        bool,
        typer.Option(
            "--stop-when-empty", help="Exit when no job can start: no job is ready in a queue that is not paused."
        ),
    ] = False,
    stop_when_empty_for: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Exit when no job was ready for this long.", show_default=False),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(metavar="MB", min=16, help="Replace a child that uses more memory than this.", show_default=False),
    ] = None,
    tries: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Maximum number of attempts, for jobs that set none; 0 = no limit [DELAYQ_TRIES, else 5].",
            show_default=False,
        ),
    ] = None,
    backoff: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION,…",
            help="Waiting times after failed attempts, for jobs that set none: 10s,1m [DELAYQ_BACKOFF].",
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Maximum running time of one attempt, for jobs that set none; 0s = no limit "
            "[DELAYQ_TIMEOUT, else 1m].",
            show_default=False,
        ),
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="How long running jobs may continue after the worker is asked to stop [DELAYQ_GRACE, else 25s].",
            show_default=False,
        ),
    ] = None,
    rest: Annotated[str, typer.Option(metavar="DURATION", help="Pause after each job.")] = "0s",
    sleep: Annotated[
        str, typer.Option(metavar="DURATION", help="How long an idle child waits for a job in one read of Redis.")
    ] = "5s",
    force: Annotated[bool, typer.Option("--force", help="Run jobs during maintenance too.")] = False,
    allow_eviction: AllowEviction = False,
    no_mover: Annotated[
        bool,
        typer.Option(
            "--no-mover",
            help="Do not run mover, janitor and relay in this worker. Another worker or `delayq move` must run them.",
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log only warnings and errors.")] = False,
    log_jobs: Annotated[
        bool, typer.Option("--log-jobs", help="Log one line per attempt: start time, duration, outcome.")
    ] = False,
    log_format: Annotated[
        LogFormat | None, typer.Option(help="Format of log lines [DELAYQ_LOG_FORMAT, else text].", show_default=False)
    ] = None,
    json: JsonLines = False,
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Name of this worker in `delayq workers`, instead of the host name.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Run a worker until SIGTERM or Ctrl-C. Running jobs then get a grace period to finish (--grace).

    delayq work --app shop.jobs

    Signals: TERM, INT, QUIT and HUP stop the worker; the same signal again, at least 2 s later, stops it at once. USR2
    pauses the worker, CONT resumes it, and USR1 is ignored.

    Exit codes: 0 stopped in good order; 1 a queue could not be read; 2 wrong use, or Redis refused the login at the
    start or, later, for a whole minute; 5 Redis was not reachable at the start; 6 Redis evicts keys, so jobs could get
    lost (see --allow-eviction); 130 stopped at once. Code 1 is possible only with --once, --stop-when-empty or
    --stop-when-empty-for. Code 5 is possible only with these options or --max-time, or if the embedded server does not
    start. Otherwise, the worker waits for Redis.
    """
    if queue and weighted:
        raise InvalidInput("--queue and --weighted are both given.", hint="Leave out one of them.", field="weighted")
    session = session_of(context)
    quiet = quiet or session.quiet
    if log_jobs and quiet:
        raise InvalidInput("--log-jobs and --quiet are both given.", hint="Leave out one of them.", field="log_jobs")
    drop_lost_output()
    if json:
        # so that errors before the settings are known are JSON too
        begin_logging(log_format="json", level="INFO", quiet=quiet)
    of_all = session.with_given(tries=tries, backoff=backoff, timeout=timeout, grace=grace)
    application = name_of_application(app, of_all)
    settings = of_all.chosen()
    if json:
        log_format = "json"
    form = log_format or settings.log_format
    handler = begin_logging(log_format=form, level=settings.log_level, quiet=quiet)
    load_application(application)
    settle_logging(handler, is_format_said=log_format is not None)
    is_embedded = settings_of_application(settings).uses_embedded
    settings = prepare_application(session, of_all, names_server=False)
    weights = parse_weights(weighted) if weighted else {}
    empty_for = _seconds(stop_when_empty_for, "stop_when_empty_for")
    queues = list(weights) or (parse_queues(*queue) if queue else queues_of_application())
    check_served(queues)
    options = WorkerOptions(
        queues=queues,
        order=weighted_order(weights) if weights else strict,
        processes=1 if once else processes,
        threads=1 if once else threads,
        grace=settings.grace / 1000,
        timeout_grace=settings.timeout_grace / 1000,
        max_jobs=1 if once else max_jobs,
        max_time=_seconds(max_time, "max_time"),
        memory=None if memory is None else memory * 1_000_000,
        stop_when_empty_for=0.0 if once or stop_when_empty else empty_for,
        rest=_seconds(rest, "rest") or 0.0,
        sleep=max(_seconds(sleep, "sleep") or 0.0, 0.01),
        forced=force,
        allows_eviction=allow_eviction,
        with_loops=not no_mover,
        log_jobs=log_jobs,
        name=check_host(name) if name else "",
    )
    if not quiet:
        _tell(session, settings, is_embedded, f"working on {', '.join(queues)}, {_how_many(options)}", form)
        if not registry.names():
            _note(f"The module {application} declares no jobs, so this worker can run none. Is it the right module?")
        for connection in connections_elsewhere():
            _note(
                f"Jobs of the connection {connection} need a worker of their own: "
                f"`delayq --connection {connection} work …`."
            )
    raise typer.Exit(run_worker(backend_of(settings), settings.options(), options, registry))


def move(
    context: typer.Context,
    once: Annotated[
        bool, typer.Option("--once", help="Make due jobs ready once, print their number, and exit.")
    ] = False,
    allow_eviction: AllowEviction = False,
    json: JsonLines = False,
) -> None:
    """Make due jobs ready without running them, until SIGTERM or Ctrl-C. Workers without --no-mover do this too.

    delayq move

    The command also redelivers the jobs of vanished workers, repairs queues, and sends follow-up jobs. With --once, it
    redelivers the jobs of a queue only if a worker, a mover or an earlier run has checked the queue within the last
    half lease. Exit code 1: with --once, a call for a queue or for the list of queues failed. Exit code 6: Redis evicts
    keys, so jobs could get lost (see --allow-eviction).
    """
    drop_lost_output()
    session = session_of(context)
    if json:
        # so that errors before the settings are known are JSON too
        begin_logging(log_format="json", level="INFO", quiet=session.quiet)
    is_embedded = session.settings.uses_embedded
    settings = session.with_server(session.settings, names_server=once)
    form: LogFormat = "json" if json else settings.log_format
    begin_logging(log_format=form, level=settings.log_level, quiet=session.quiet)
    if once:
        moved, is_complete = move_once(backend_of(settings), settings.options(), allows_eviction=allow_eviction)
        if json:
            print_json(MoveShape(moved))
        else:
            print_text(f"{several(moved, 'job')} moved")
        raise typer.Exit(ExitCode.OK if is_complete else ExitCode.FAILED)
    undisturbed = threading.Lock()
    _exit_at_signals(undisturbed)
    _tell(session, settings, is_embedded, "moving due jobs in all queues", form)
    run_mover(backend_of(settings), settings.options(), allows_eviction=allow_eviction, undisturbed=undisturbed)


def _exit_at_signals(undisturbed: threading.Lock) -> None:
    """End this process with code 0 at TERM, INT, HUP and QUIT, even while C code blocks the main thread.

    If the main thread holds the lock `undisturbed`, first wait for up to LAST_PAGE seconds, so that the relay can
    finish its page of records.

    Python runs signal handlers only in the main thread, and only after C code has returned. A name lookup without a
    name server takes many seconds. So a thread reads a pipe, into which Python writes the number of each signal at
    once.
    """
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    ends = [one for one in numbers if not is_ignored(one)]  # nohup ignores HUP
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)

    def wait() -> None:
        while not set(os.read(reader, 64)) & set(ends):
            pass
        undisturbed.acquire(timeout=LAST_PAGE)
        os._exit(0)  # an exception could get lost in a destructor

    for number in ends:
        signal.signal(number, without_effect)
    threading.Thread(target=wait, daemon=True).start()


def _tell(session: CliSession, settings: Settings, is_embedded: bool, what: str, form: LogFormat) -> None:
    """Report on stderr what this process does, and on which server, because a wrong server is a frequent mistake."""
    if session.quiet:
        return
    where = backend_of(settings).where
    if is_embedded:
        where += f", embedded server, data in {embedded_of(settings).data_dir}"
    if form == "json":
        logging.getLogger("delayq").info("%s; Redis at %s", what, where)
    elif takes_output(sys.stderr, within=PATIENCE):
        print(f"delayq: {what}; Redis at {where}", file=sys.stderr, flush=True)


def _note(text: str) -> None:
    """Print a note on stderr, as a log line if log lines are JSON."""
    if writes_json():
        logging.getLogger("delayq").warning(text)
    else:
        print_note(text)


def _how_many(options: WorkerOptions) -> str:
    """Return a text with the number of jobs that run at a time. With one at a time, a long job delays all others."""
    at_a_time = options.processes * options.threads
    return "one job at a time" if at_a_time == 1 else f"{at_a_time} jobs at a time"


def _seconds(duration: str | None, field: str) -> float | None:
    return None if duration is None else duration_ms(duration, field=field) / 1000
