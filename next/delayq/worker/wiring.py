"""Puts a worker together: the only module of the worker that knows Redis, the settings and the application."""

import atexit
import faulthandler
import gc
import os
import signal
from functools import partial
from typing import Final

from delayq.core.events import WorkerStopping
from delayq.core.outcome import Policy
from delayq.jobs.listeners import emit
from delayq.jobs.registry import Registry
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.url import Address
from delayq.redis.health import refuse_eviction
from delayq.redis.keys import Keys
from delayq.redis.scripts import load_all
from delayq.redis.worker.consumer import RedisConsumer
from delayq.redis.worker.hints import Hints
from delayq.redis.worker.lease_keeper import RedisLeaseKeeper
from delayq.redis.worker.worker_registry import RedisWorkerRegistry
from delayq.settings.model import Settings
from delayq.worker.announcing import Announcing
from delayq.worker.attempt import Attempts
from delayq.worker.child import Child
from delayq.worker.children import Children
from delayq.worker.crash_recovery import CrashRecovery
from delayq.worker.in_flight import InFlight
from delayq.worker.lease_renewal import LeaseRenewal
from delayq.worker.options import WorkerOptions
from delayq.worker.processes import WAKE_SIGNAL
from delayq.worker.runners.job_runner import JobRunner
from delayq.worker.shared_memory import SlotTable
from delayq.worker.sidecar import run_sidecar
from delayq.worker.start_up import when_reachable
from delayq.worker.stopping import Stopping
from delayq.worker.supervisor import TICK, Sidecar, Supervisor
from delayq.worker.timeouts import Timeouts
from delayq.worker.watchdog import Watchdog

HASTY: Final = 1.0
"""Seconds of retry_timeout of supervisors and children: they come again anyway."""

SHORTEST_FLUSH: Final = 1.0
"""Seconds that listeners and exit hooks of a child have at least, however short the grace is."""


def work(settings: Settings, options: WorkerOptions, registry: Registry) -> int:
    """Run a worker until it is to stop, and return the exit code."""
    return Worker(settings, options, registry).run()


class Worker:
    """One worker: what its supervisor and its children are made of."""

    def __init__(self, settings: Settings, options: WorkerOptions, registry: Registry) -> None:
        self._settings = settings
        self._options = options
        self._registry = registry
        self._address = Address(settings.must_have_url())
        self._keys = Keys(settings.prefix)

    def run(self) -> int:
        """Run the supervisor, in this process."""
        options, queues = self._options, list(self._options.queues)
        executor = Executor(BlockingLeaf(self._address), retry_timeout=HASTY)
        consumer = RedisConsumer(executor, self._keys, queues, self._settings.options(), name="")
        lease = when_reachable(consumer.open, retry_timeout=options.start_timeout)
        if not options.allows_eviction:
            refuse_eviction(executor)
        stop_hints = Hints(self._address, self._keys.cancel)
        keeper = RedisLeaseKeeper(executor, self._keys, queues, self._settings.options(), stop_hints)
        workers = RedisWorkerRegistry(executor, self._keys)
        stopping = Stopping(options)
        stopping.know_restart(consumer.switches().restart_ms)
        new_slots = partial(SlotTable, queues)
        children = Children(
            self._run_child, new_slots, processes=options.processes, max_jobs=options.max_jobs, host=options.name
        )
        supervisor = Supervisor(
            children,
            Sidecar(partial(run_sidecar, self._settings, queues, lease) if options.with_loops else None),
            stopping,
            alive=[
                LeaseRenewal(keeper, lease=lease),
                Timeouts(is_single=options.is_single),
                Announcing(workers, queues, now_ms=consumer.now_ms, host=options.name),
            ],
            ended=CrashRecovery(keeper, self._attempts(consumer).end_of_killed),
            tick=min(TICK, lease / 6),
        )
        load_all()
        gc.freeze()  # what is imported by now is never garbage; children need not look at it, nor copy its pages
        return supervisor.run()

    def _attempts(self, consumer: RedisConsumer) -> Attempts:
        options = self._settings.options()
        standard = Policy(
            tries=options.tries,
            backoff=options.backoff,
            timeout_ms=options.timeout_ms,
            retention_ms=options.retention_ms,
        )
        return Attempts(self._registry, now_ms=consumer.now_ms, standard=standard)

    def _run_child(self, name: str, slots: SlotTable, jobs_left: int | None) -> int:
        """Run one child: the main of a forked process."""
        options = self._options
        _clear_exit_hooks()
        wake_fd, signal_fd = os.pipe()
        os.set_blocking(signal_fd, False)
        signal.set_wakeup_fd(signal_fd)
        signal.signal(WAKE_SIGNAL, lambda *_: None)
        signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C: the supervisor decides
        consumer = RedisConsumer(
            Executor(BlockingLeaf(self._address, wake_fd=wake_fd), retry_timeout=HASTY),
            self._keys,
            list(options.queues),
            self._settings.options(),
            name=name,
            order=options.order,
            forced=options.forced,
        )
        lease = when_reachable(consumer.open)
        in_flight = InFlight(slots, threads=options.threads)
        runner = JobRunner(in_flight, self._attempts(consumer), self._registry, threads=options.threads)
        child = Child(
            consumer,
            slots,
            in_flight,
            runner,
            lease=lease,
            jobs_left=jobs_left,
            rest=options.rest,
            idle_wait=options.idle_wait,
        )
        _listen_to_signals(child, runner)
        watchdog = Watchdog(
            in_flight,
            relieve=child.relieve,
            interrupt=runner.interrupt,
            store_progress=consumer.store_progress,
            lease=lease,
            memory=options.memory,
        )
        watchdog.start()
        child.run()
        watchdog.stop()
        _leave(name, max(options.grace, SHORTEST_FLUSH))
        return 0


def _listen_to_signals(child: Child, runner: JobRunner) -> None:
    """TERM raises once more in a job that was interrupted and goes on; otherwise it ends the child in good order."""

    def on_term(*_: object) -> None:
        if runner.inline is not None:
            runner.inline.raise_again()
        child.stopping = True
        runner.wake()

    signal.signal(signal.SIGTERM, on_term)
    if runner.inline is not None:
        runner.inline.listen()


def _clear_exit_hooks() -> None:
    """Forget what was registered with atexit before the fork: it belongs to the parent."""
    atexit._clear()


def _leave(name: str, seconds: float) -> None:
    """Let the application flush: call the listeners, then what was registered with atexit in this process.

    If that takes longer than `seconds`, the process ends by SIGALRM, and its stacks go to stderr: a hook that hangs
    must not keep a child from being replaced. At a stop of the worker, the supervisor may end it sooner.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, file=2, chain=True)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    emit(WorkerStopping(name))
    atexit._run_exitfuncs()
