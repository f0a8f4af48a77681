"""The main function of a child process: it creates the objects of the child, connects signals, and runs its loop."""

import atexit
import faulthandler
import os
import signal
import sys
from typing import Any, Final

from delayq.backends.protocol import Backend
from delayq.core.errors import BackendUnavailable, LoginRefused, OutcomeUnknown
from delayq.core.events import WorkerStarting, WorkerStopping
from delayq.core.listeners import emit
from delayq.core.options import Options
from delayq.core.outcome import default_policy
from delayq.jobs.django_connections import handlers_of_child
from delayq.jobs.registry import Registry
from delayq.worker import log_context
from delayq.worker.attempt import Attempts
from delayq.worker.child import Child
from delayq.worker.forking import ONLY_FOR_PARENT, WAKE_SIGNAL
from delayq.worker.in_flight import InFlight
from delayq.worker.listened_attempt import class_of_attempts
from delayq.worker.listening_child import maker_of_child, queues_of
from delayq.worker.options import WorkerOptions
from delayq.worker.runners.job_runner import JobRunner
from delayq.worker.shared_memory import SlotTable
from delayq.worker.start_up import when_reachable
from delayq.worker.watchdog import Watchdog

SHORTEST_LIMIT: Final = 1.0
"""Shortest time limit for the exit listeners and atexit hooks of a child, in seconds. The limit is the grace period, if
that is longer.
"""

REPORT_TIME: Final = 0.5
"""How long the report of all stacks to stderr may take, in seconds. The write blocks if stderr is a full pipe that no
process reads.
"""

SHORTEST_FLUSH: Final = 3.0
"""Shortest time limit for the last flush of stdout and stderr, in seconds. The limit is the grace period, if that is
longer.

For each stream, the flush first waits up to 1 s until the stream accepts output. After this wait, the write can still
block without end, if the text does not fit into the pipe. This limit then ends the process.
"""


def run_child(
    name: str,
    slots: SlotTable,
    jobs_left: int | None,
    *,
    backend: Backend,
    defaults: Options,
    options: WorkerOptions,
    registry: Registry,
) -> int:
    """Run one child in a forked process until it has stopped, and return its exit code.

    `name`: consumer name of the child in the backend. `slots`: its part of the memory shared with the supervisor.
    `jobs_left`: how many jobs the child may run; None = any number. `defaults`: values for options that a job does not
    declare.
    """
    atexit._clear()  # hooks that were registered before the fork belong to the parent
    wake_fd, signal_fd = os.pipe()
    os.set_blocking(signal_fd, False)
    signal.set_wakeup_fd(signal_fd)
    os.register_at_fork(after_in_child=_forget_signals)
    signal.signal(WAKE_SIGNAL, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C may reach all processes; only the supervisor reacts

    consumer = backend.consumer(slots.queues, name=name, order=options.order, forced=options.forced, wake_fd=wake_fd)
    try:
        lease = when_reachable(consumer.open, waits_for_login=True, is_ending=slots.is_to_stop)
    except (BackendUnavailable, OutcomeUnknown, LoginRefused):  # raised only if the supervisor has ordered a stop
        return 0
    handlers = handlers_of_child(registry)
    in_flight = InFlight(slots, threads=options.threads)
    attempts = Attempts(
        handlers,
        now_ms=consumer.now_ms,
        standard=default_policy(defaults),
        unlock=consumer.unlock,
        key_ring=defaults.key_ring,
        make=class_of_attempts(),
    )
    runner = JobRunner(
        in_flight,
        attempts,
        registry,
        threads=options.threads,
        timeout_grace=options.timeout_grace,
        log_jobs=options.log_jobs,
    )
    log_context.install()
    child = maker_of_child(name)(
        consumer,
        slots,
        in_flight,
        runner,
        lease=lease,
        jobs_left=jobs_left,
        rest=options.rest,
        idle_wait=options.idle_wait,
        awaits_follow_ups=options.stop_when_empty_for is not None,
    )
    _listen_to_signals(child, runner)
    watchdog = Watchdog(
        in_flight,
        settle_and_hand_back=child.settle_and_hand_back,
        interrupt=runner.interrupt,
        store_progress=consumer.store_progress,
        lease=lease,
        memory=options.memory,
    )
    watchdog.start()
    emit(WorkerStarting(name, queues_of(slots.queues)))
    child.run()
    watchdog.stop()
    _leave(name, max(options.grace, SHORTEST_LIMIT))
    return 0


def _listen_to_signals(child: Child, runner: JobRunner) -> None:
    """Let TERM shut the child down gracefully, and let the watchdog interrupt handlers in the main thread."""

    def on_term(*_: object) -> None:
        child.stopping = True
        runner.wake()

    signal.signal(signal.SIGTERM, on_term)
    if runner.inline is not None:
        runner.inline.listen()


def _forget_signals() -> None:
    """In a process that a handler forks, undo the signal handlers of the worker, unless the application replaced them.

    With the signal handlers of the worker, TERM would not end the process, so `multiprocessing.Pool.terminate()` would
    hang.
    """
    defaults: dict[int, Any] = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
        WAKE_SIGNAL: signal.SIG_DFL,
        signal.SIGUSR1: signal.SIG_DFL,
        **dict.fromkeys(ONLY_FOR_PARENT, signal.SIG_DFL),
    }
    for number, default in defaults.items():
        handler = signal.getsignal(number)
        if getattr(handler, "__module__", "").startswith("delayq.worker."):
            signal.signal(number, default)
    signal.set_wakeup_fd(-1)


def _terminate_leftovers() -> None:
    """Terminate processes that handlers started with `multiprocessing`, because its exit hook would wait for them."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None:
        for process in multiprocessing.active_children():
            process.terminate()


def _leave(name: str, seconds: float) -> None:
    """Run the exit listeners and the atexit hooks of this process, so that the application can flush its buffers.

    If listeners and hooks together take longer than `seconds`, `faulthandler` writes the stacks of all threads to
    stderr. REPORT_TIME later, SIGALRM ends the process, even if the report blocks because nobody reads stderr: the
    default action of SIGALRM needs no Python code. So a hook that hangs delays the replacement of the child by at most
    `seconds` + REPORT_TIME, unless the hook changes SIGALRM. While the worker is shutting down, the supervisor may kill
    the process sooner.

    After the hooks, the last flush gets a time limit of its own, because it may wait for a slow reader.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds + REPORT_TIME)
    faulthandler.dump_traceback_later(seconds, file=2)
    _terminate_leftovers()
    emit(WorkerStopping(name))
    atexit._run_exitfuncs()
    faulthandler.cancel_dump_traceback_later()
    signal.setitimer(signal.ITIMER_REAL, max(seconds, SHORTEST_FLUSH))
