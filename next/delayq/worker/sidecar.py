"""The mover, the relay and the janitor: in the sidecar of a worker, or in a process that only moves."""

import os
import signal
from collections.abc import Callable

from delayq.loops.janitor import Janitor
from delayq.loops.loop import run_loops
from delayq.loops.mover import Mover
from delayq.loops.relay import Relay
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.url import Address
from delayq.redis.health import refuse_eviction
from delayq.redis.keys import Keys
from delayq.redis.scripts import load_all
from delayq.redis.worker.hints import Hints
from delayq.redis.worker.queue_keeper import RedisQueueKeeper
from delayq.settings.model import Settings
from delayq.worker.children import consumer_name
from delayq.worker.start_up import when_reachable


def run_sidecar(settings: Settings, queues: list[str], lease: float) -> int:
    """Run the loops: the main of a forked process, which ends when its parent has gone.

    SIGTERM may end it at any moment, because each of its calls is one script.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the supervisor decides
    parent = os.getppid()
    _run(settings, queues, lease, stopping=lambda: os.getppid() != parent)
    return 0


def move(settings: Settings, *, allows_eviction: bool) -> None:
    """Run the loops in this process until a signal ends it.

    Raises UnsafeSetup for a server that evicts, unless that is allowed, and ConfigError.
    """
    load_all()
    executor = Executor(BlockingLeaf(Address(settings.must_have_url())))
    if not allows_eviction:
        when_reachable(lambda: refuse_eviction(executor))
    _run(settings, [], settings.lease / 1000, stopping=lambda: False)


def move_once(settings: Settings, *, allows_eviction: bool) -> int:
    """Repair each queue, make all ready that is due, and send what follows; return how many jobs became ready.

    A queue that is damaged is logged and left alone. Raises UnsafeSetup as `move` does, BackendUnavailable and
    OutcomeUnknown.
    """
    executor = Executor(BlockingLeaf(Address(settings.must_have_url())))
    if not allows_eviction:
        refuse_eviction(executor)
    mover, relay, janitor = _loops(executor, settings, [], settings.lease / 1000, hears=lambda: False)
    janitor.step(set())
    while mover.step(set()) == 0:
        pass
    relay.step(set())
    return mover.promoted


def _run(settings: Settings, queues: list[str], lease: float, *, stopping: Callable[[], bool]) -> None:
    """Run the loops in this thread, until `stopping`."""
    address = Address(settings.must_have_url())
    hints = Hints(address, Keys(settings.prefix).wake)
    loops = _loops(Executor(BlockingLeaf(address)), settings, queues, lease, hears=lambda: hints.is_subscribed)
    run_loops(loops, lambda seconds: {queue for queue, _ in hints.wait(seconds)}, stopping)


def _loops(
    executor: Executor, settings: Settings, queues: list[str], lease: float, *, hears: Callable[[], bool]
) -> tuple[Mover, Relay, Janitor]:
    """Make the loops. `queues` are served whether they are listed or not; `lease` is their shortest one, in seconds."""
    options = settings.options()
    keeper = RedisQueueKeeper(executor, Keys(settings.prefix), options, name=consumer_name(), queues=queues)
    mover = Mover(keeper, hears)
    janitor = Janitor(keeper, reclaim_every=lease / 3, repair_every=options.tidy_every_ms / 1000)
    return mover, Relay(keeper, mover.outboxes), janitor
