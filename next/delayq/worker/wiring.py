"""Puts a worker together: the only module of the worker that knows Redis and the application."""

import gc
import os
import signal
from functools import partial

from delayq.jobs.function import Registry
from delayq.loops.janitor import Janitor
from delayq.loops.loop import run_loops
from delayq.loops.mover import Mover
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys
from delayq.redis.worker.consumer import RedisConsumer
from delayq.redis.worker.hints import Hints
from delayq.redis.worker.keepers import RedisKeeper
from delayq.worker.attempt import attempt
from delayq.worker.child import Child
from delayq.worker.executors import InlineExecutor, JobExecutor, ThreadExecutor
from delayq.worker.in_flight import InFlight
from delayq.worker.options import WorkerOptions
from delayq.worker.shared_memory import SlotTable
from delayq.worker.supervisor import Supervisor
from delayq.worker.watchdog import Watchdog


def work(options: WorkerOptions, registry: Registry) -> int:
    """Run a worker until a signal stops it, and return the exit code."""
    address = Address(options.url)
    keys = Keys(options.prefix)
    executor = Executor(BlockingLeaf(address))
    lease = RedisConsumer(executor, keys, options.queues, "").open()
    supervisor = Supervisor(
        keeper=RedisKeeper(executor, keys, options.queues),
        child_main=partial(_run_child, options, registry, lease),
        new_slots=partial(SlotTable, options.queues),
        lease=lease,
        processes=options.processes,
        sidecar_main=partial(run_sidecar, options, lease) if options.with_loops else None,
    )
    gc.freeze()  # what is imported by now is never garbage; children need not look at it, nor copy its pages
    return supervisor.run()


def _run_child(options: WorkerOptions, registry: Registry, lease: float, consumer_name: str, slots: SlotTable) -> int:
    """Run one child: the main of a forked process."""
    wake_fd, signal_fd = os.pipe()
    os.set_blocking(signal_fd, False)
    signal.set_wakeup_fd(signal_fd)
    executor = Executor(BlockingLeaf(Address(options.url), wake_fd=wake_fd))
    consumer = RedisConsumer(executor, Keys(options.prefix), options.queues, consumer_name)
    in_flight = InFlight(slots, places=options.threads)
    run_job = partial(attempt, registry=registry)
    jobs: JobExecutor
    if options.threads == 1:
        jobs = InlineExecutor(in_flight, run_job)
    else:
        jobs = ThreadExecutor(in_flight, run_job, threads=options.threads)
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


def run_sidecar(options: WorkerOptions, lease: float) -> int:
    """Run the mover and the janitor: the main of a forked process. SIGTERM may end it at any moment."""
    address = Address(options.url)
    keys = Keys(options.prefix)
    keeper = RedisKeeper(Executor(BlockingLeaf(address)), keys, options.queues)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_loops([Mover(keeper), Janitor(keeper, every=lease / 3)], Hints(address, keys).wait, lambda: False)
    return 0
