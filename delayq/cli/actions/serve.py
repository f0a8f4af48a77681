"""work and move: what runs until it is told to stop."""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from delayq.app import (
    address_of,
    connection_of,
    fallback_policy,
    load_handlers,
    make_loops,
    make_worker,
    move_once,
    on_redis,
    open_driver,
    open_served,
    queues_of,
    refuse_eviction,
    with_application,
)
from delayq.cli import logs
from delayq.cli.actions.wishes import Limits as Limits
from delayq.cli.actions.wishes import Size as Size
from delayq.cli.actions.wishes import Told
from delayq.cli.actions.wishes import Wishes as Wishes
from delayq.cli.events import EventLines
from delayq.cli.session import Session
from delayq.cli.words import count
from delayq.core.endpoint import Endpoint
from delayq.core.errors import ConfigError, InvalidInput, InvalidName
from delayq.core.events import Listener
from delayq.core.names import check_queue
from delayq.core.order import parse_weights
from delayq.core.when import duration_ms
from delayq.drivers.base import Driver
from delayq.drivers.redis_streams import RedisStreams
from delayq.jobs.current import make_manager, replace_manager
from delayq.jobs.registry import Registry
from delayq.loops.vitals import Vitals
from delayq.metrics.opening import open_stand
from delayq.redis.opening import url_of
from delayq.settings import Settings
from delayq.worker.names import consumer_name
from delayq.worker.options import WorkerOptions
from delayq.worker.plan import never
from delayq.worker.signals import Signals, leaving_when_told

LOOK_S: Final = 0.25
LONGEST_SLEEP_MS: Final = 3_600_000
LOOKS_MS: Final = 1_000
"""A worker looks this often at least: at its queues, and at whether they are paused."""
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Gone = Callable[[], bool]
"""Whether what a command serves is gone, so that it should end."""


def work(session: Session, apps: Sequence[str], wishes: Wishes, limits: Limits, *, quiet: bool, as_json: bool) -> int:
    """Run jobs until there is a reason to stop; its exit code."""
    began = time.monotonic()  # before the application's code is loaded
    events = EventLines() if as_json else None
    said = {"tries": wishes.tries, "backoff": wishes.backoff, "timeout": wishes.timeout, "grace": wishes.grace}
    settings = session.settings(**said, connection=wishes.connection, metrics_port=wishes.metrics_port)
    with leaving_when_told():
        registry = handlers(settings, apps)
        if registry.is_empty:
            raise ConfigError(
                "No job is registered, so there is nothing this worker could run.",
                hint="Name the module that has your @job functions: --app shop.jobs, or DELAYQ_APP.",
            )
        again = session.read(**said, connection=wishes.connection, metrics_port=wishes.metrics_port)
        settings = with_application(settings, again)
        return work_on(session, settings, registry, Told(wishes, limits, quiet, began, events))


def work_on(session: Session, settings: Settings, registry: Registry, told: Told) -> int:
    """A worker with these handlers on the connection that the settings mean; its exit code."""
    wishes, limits = told.wishes, told.limits
    name, manager = connection_of(settings), make_manager(settings)
    replace_manager(manager)  # it knows by that what the application told the one before, its drivers above all
    backend, given = manager.backend(name), manager.given(name)
    at_home = settings.model_copy(update={"queue": given.queue}) if given.queue else settings
    options = worker_options(at_home, registry, wishes, limits)
    url = None
    if backend is None:
        here = on_redis(settings)
        look_before(here, found := url_of(here), wishes)
        url = found if here is settings else None
    elif not backend.capabilities.mover:
        options = replace(options, mover=False)
    staff = Staff(registry, options, told.quiet or session.out.quiet, told.began, told.events)
    return run_worker(session, settings, url, staff)


def one_word(backoff: str | None, delay: str | None) -> str | None:
    """`--backoff`, or what Laravel called it before. Raises `InvalidInput` for both."""
    if backoff is not None and delay is not None:
        raise InvalidInput(
            f"--backoff {backoff} and --delay {delay} say the same thing twice.", hint="Use --backoff alone."
        )
    return delay if backoff is None else backoff


def print_at_once() -> None:
    """What handlers print shows line by line, also in a pipe or a file: children end without a last flush."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)


def look_before(settings: Settings, url: str | Endpoint, wishes: Wishes) -> None:
    """Raises `UnsafeSetup` for a Redis that may throw jobs away. Leaves no connection: a worker is about to fork."""
    if not wishes.allow_eviction:
        with open_driver(settings, url=url) as driver:
            refuse_eviction(driver)


def handlers(settings: Settings, apps: Sequence[str]) -> Registry:
    """What the modules of `--app`, else of the settings, register, and the queues that are pushed."""
    registry = load_handlers(apps or ([settings.app] if settings.app else []))
    if settings.push:
        from delayq.push.registering import register_pushes  # which few need

        register_pushes(registry, settings.push)
    return registry


def worker_options(settings: Settings, registry: Registry, wishes: Wishes, limits: Limits) -> WorkerOptions:
    """What a worker is told; everything wrong with the options is found here."""
    if (sleep_ms := duration_ms(wishes.sleep)) > LONGEST_SLEEP_MS:
        raise InvalidInput(
            f"--sleep {wishes.sleep} is too long for a wait between two looks.",
            hint="Use at most 1h; a worker looks every few seconds all the same.",
        )
    if limits.once and limits.max_jobs:
        raise InvalidInput(
            f"--once is one job, and --max-jobs {limits.max_jobs} is another number.", hint="Use one of them."
        )
    queues, weights = _queues(settings, registry, wishes)
    return WorkerOptions(
        queues=queues,
        weights=weights,
        fallback=fallback_policy(settings),
        name=consumer_name(_label(wishes.name)) if wishes.name is not None else "",
        once=limits.once,
        stop_when_empty=limits.stop_when_empty,
        stop_when_empty_for_ms=duration_ms(limits.stop_when_empty_for),
        processes=wishes.size.processes,
        threads=wishes.size.threads,
        max_jobs=limits.max_jobs,
        max_time_ms=duration_ms(limits.max_time),
        memory_mb=limits.memory,
        rest_ms=duration_ms(wishes.rest),
        sleep_ms=min(sleep_ms, LOOKS_MS),
        mover=wishes.size.mover,
        force=wishes.force,
        ends_process=True,
        grace_ms=settings.grace_ms,
        tidy_every_ms=settings.tidy_every_ms,
        max_recoveries=settings.max_recoveries,
    )


def _queues(settings: Settings, registry: Registry, wishes: Wishes) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The queues, and with --weighted a weight for each; without it ":6" is a part of a name as any other."""
    if wishes.queue is None:
        queues = queues_of(settings, registry)
    elif wishes.weighted:
        weights = parse_weights(wishes.queue)
        return tuple(weights), tuple(weights.values())
    else:
        queues = tuple(dict.fromkeys(check_queue(name.strip()) for name in wishes.queue.split(",")))
    return queues, (1,) * len(queues) if wishes.weighted else ()


def _label(name: str) -> str:
    if not _LABEL.fullmatch(name):
        raise InvalidName(
            f"--name {name!r} cannot name a worker.",
            hint="Use 1 to 64 of A-Z a-z 0-9 . _ - and start with a letter or a digit.",
        )
    return name


@dataclass(frozen=True, slots=True)
class Staff:
    """Who works: the handlers, the worker's options, whether it keeps quiet, and when it began to load the handlers.

    `events` writes for programs what happens.
    """

    registry: Registry
    options: WorkerOptions
    quiet: bool
    began: float | None = None
    events: EventLines | None = None

    @property
    def listeners(self) -> list[Listener]:
        """Log lines for people, events for programs; who is quiet and writes events need not say it twice."""
        if self.events is None:
            return [logs.JobLines()]
        return [self.events] if self.quiet else [logs.JobLines(), self.events]


def run_worker(
    session: Session, settings: Settings, url: str | Endpoint | None, staff: Staff, gone: Gone = never
) -> int:
    """Work until a signal, a limit, or `gone`; the exit code. `url` as in `make_plan`."""
    print_at_once()
    logs.start(settings, quiet=staff.quiet)
    options = staff.options

    def greet() -> None:
        if not staff.quiet:
            served = f"Serving {_served(options)} with {_handled(staff.registry)}."
            at_a_time = count(options.processes * options.threads, "job")
            where = f"From {address_of(settings)}, {at_a_time} at a time. Stop with Ctrl-C."
            logs.greet(session.out, settings, f"{served} {where}")

    worker = make_worker(
        settings, url, staff.registry, options, listeners=staff.listeners, gone=gone, began=staff.began
    )
    return worker.run(greet).exit_code


def _handled(registry: Registry) -> str:
    """'3 job names', '1 pushed queue', or both."""
    named = count(len(registry.names()), "job name")
    pushed = count(len(registry.whole_queues), "pushed queue")
    if not registry.whole_queues:
        return named
    return f"{named} and {pushed}" if registry.names() else pushed


def _served(options: WorkerOptions) -> str:
    if not options.weights:
        return ", ".join(options.queues)
    weighed = zip(options.queues, options.weights, strict=True)
    return ", ".join(f"{queue} (weight {weight})" for queue, weight in weighed)


def move(session: Session, *, once: bool, allow_eviction: bool, metrics_port: str | None) -> int:
    """Mover and janitor, until a signal or once; the exit code."""
    settings = session.settings(metrics_port=metrics_port)
    name = connection_of(settings)
    backend = make_manager(settings).backend(name)
    if backend is not None and not backend.capabilities.mover:
        raise ConfigError(
            f"The connection {name!r} needs no mover: its backend hands out what is due by itself.",
            hint=f"Run its worker: delayq --connection {name} work.",
        )
    logs.start(settings, quiet=session.out.quiet)
    with open_driver(on_redis(settings)) if backend is None else open_served(settings) as driver:
        if isinstance(driver, RedisStreams) and not allow_eviction:
            refuse_eviction(driver)
        if once:
            moved = move_once(driver, settings)
            session.out.line(str(moved))
            session.out.note(f"{count(moved, 'job')} moved.")
            return 0
        greeting = f"Moving what is due, in all queues of {address_of(settings)}. Stop with Ctrl-C."
        return run_loops(
            driver,
            settings,
            lambda: logs.greet(session.out, settings, greeting),
        )


def run_loops(driver: Driver, settings: Settings, greet: Callable[[], None], gone: Gone = never) -> int:
    """Mover and janitor of all queues in threads, until a signal or `gone`; the exit code.

    `greet` is called once signals are heard: who reads that Ctrl-C stops it may press it at once.
    """
    vitals, stand = Vitals(), open_stand(settings)
    loops = make_loops(driver, settings, vitals)
    with Signals(last=True) as signals:
        greet()
        if stand is not None:
            stand.open((), vitals)
        for loop in loops:
            loop.start()
        while not signals.stops and not gone():
            signals.wait(LOOK_S)
        for loop in loops:
            loop.ask_to_stop()
        for loop in loops:
            loop.stop()
    return 0
