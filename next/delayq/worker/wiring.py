"""Puts a worker together: the only module of the worker that knows Redis, the settings and the application."""

import gc
import os
import signal
from functools import partial

from delayq.jobs.function import Registry
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys
from delayq.redis.worker.consumer import RedisConsumer
from delayq.redis.worker.lease_keeper import RedisLeaseKeeper
from delayq.settings.model import Settings
from delayq.worker.attempt import Attempts
from delayq.worker.child import Child
from delayq.worker.executors import InlineExecutor, JobExecutor, ThreadExecutor
from delayq.worker.in_flight import InFlight
from delayq.worker.options import WorkerOptions
from delayq.worker.shared_memory import SlotTable
from delayq.worker.sidecar import run_sidecar
from delayq.worker.supervisor import Supervisor
from delayq.worker.watchdog import Watchdog


def work(settings: Settings, options: WorkerOptions, registry: Registry) -> int:
    """Run a worker until a signal stops it, and return the exit code."""
    keys, defaults = Keys(settings.prefix), settings.options()
    executor = Executor(BlockingLeaf(Address(settings.must_have_url())))
    keeper = RedisLeaseKeeper(executor, keys, options.queues, defaults)
    lease = RedisConsumer(executor, keys, options.queues, defaults, name="").open()
    supervisor = Supervisor(
        keeper=keeper,
        child_main=partial(_run_child, settings, options, registry),
        new_slots=partial(SlotTable, options.queues),
        lease=lease,
        processes=options.processes,
        sidecar_main=partial(run_sidecar, settings, list(options.queues), lease) if options.with_loops else None,
    )
    gc.freeze()  # what is imported by now is never garbage; children need not look at it, nor copy its pages
    return supervisor.run()


def _run_child(settings: Settings, options: WorkerOptions, registry: Registry, name: str, slots: SlotTable) -> int:
    """Run one child: the main of a forked process."""
    wake_fd, signal_fd = os.pipe()
    os.set_blocking(signal_fd, False)
    signal.set_wakeup_fd(signal_fd)
    executor = Executor(BlockingLeaf(Address(settings.must_have_url()), wake_fd=wake_fd))
    consumer = RedisConsumer(executor, Keys(settings.prefix), options.queues, settings.options(), name=name)
    lease = consumer.open()
    in_flight = InFlight(slots, places=options.threads)
    attempts = Attempts(registry, now_ms=consumer.now_ms)
    jobs: JobExecutor
    if options.threads == 1:
        jobs = InlineExecutor(in_flight, attempts.run)
    else:
        jobs = ThreadExecutor(in_flight, attempts.run, threads=options.threads)
    child = Child(consumer, slots, in_flight, jobs, lease=lease)

    def stop(*_: object) -> None:
        child.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the supervisor decides
    watchdog = Watchdog(in_flight, child.relieve)
    watchdog.start()
    child.run()
    watchdog.stop()
    return 0
