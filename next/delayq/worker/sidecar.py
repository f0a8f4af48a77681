"""The sidecar: one process beside the children, with the mover, the relay and the janitor."""

import os
import signal
from collections.abc import Callable

from delayq.loops.janitor import Janitor
from delayq.loops.loop import Loop, run_loops
from delayq.loops.mover import Mover
from delayq.loops.relay import Relay
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.executor import Executor
from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys
from delayq.redis.worker.hints import Hints
from delayq.redis.worker.queue_keeper import RedisQueueKeeper
from delayq.settings.model import Settings
from delayq.worker.children import consumer_name


def run_sidecar(settings: Settings, queues: list[str], lease: float) -> int:
    """Run the loops: the main of a forked process, which ends when its parent has gone.

    SIGTERM may end it at any moment, because each of its calls is one script.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to all; the supervisor decides
    parent = os.getppid()
    run_all_loops(settings, queues, lease, stopping=lambda: os.getppid() != parent)
    return 0


def run_all_loops(settings: Settings, queues: list[str], lease: float, *, stopping: Callable[[], bool]) -> None:
    """Run the mover, the relay and the janitor in this thread, until `stopping`.

    `queues` are served whether they are listed or not; `lease` is the shortest of their leases, in seconds.
    """
    address, keys, options = Address(settings.must_have_url()), Keys(settings.prefix), settings.options()
    executor = Executor(BlockingLeaf(address))
    keeper = RedisQueueKeeper(executor, keys, options, name=consumer_name(), queues=queues)
    hints = Hints(address, keys.wake)
    mover = Mover(keeper, lambda: hints.is_subscribed)
    janitor = Janitor(keeper, reclaim_every=lease / 3, repair_every=options.tidy_every_ms / 1000)
    loops: list[Loop] = [mover, Relay(keeper, mover.outboxes), janitor]
    run_loops(loops, lambda seconds: {queue for queue, _ in hints.wait(seconds)}, stopping)
