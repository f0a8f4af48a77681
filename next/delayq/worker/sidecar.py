"""The sidecar of a worker, a process that runs three loops, and `delayq move`, which runs them without a worker.

The mover makes due jobs ready. The relay sends the follow-up jobs of ended jobs. The janitor takes back jobs of
vanished workers and repairs queues.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from delayq.backends.protocol import Backend, WakeUps
from delayq.core.options import Options
from delayq.loops.janitor import Janitor
from delayq.loops.loop import run_loops
from delayq.loops.mover import Mover
from delayq.loops.relay import Relay
from delayq.worker.children import EARLY_DEATH, Pause, consumer_name
from delayq.worker.processes import fork, send
from delayq.worker.start_up import when_reachable

logger: Final = logging.getLogger("delayq.worker")


class Sidecar:
    """The sidecar process, as its supervisor sees it. Without a `main`, there is none."""

    def __init__(self, main: Callable[[], int] | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._main = main
        self._clock = clock
        self._started_at = self._fork_at = 0.0
        self._pause = Pause()
        self.process_id: int | None = None

    def spawn(self) -> None:
        """Fork the process if it does not run and the pause after its last death is over."""
        now = self._clock()
        if self._main is not None and self.process_id is None and now >= self._fork_at:
            self._started_at = now
            self.process_id = fork(self._main, title="delayq-mover")

    def ended(self, process_id: int, code: int) -> None:
        """Note the end of a process, if it was the sidecar."""
        if process_id == self.process_id:
            now = self._clock()
            pause = self._pause.after_death(is_early=now - self._started_at <= EARLY_DEATH)
            logger.warning("the sidecar (mover, janitor, relay) ended with %d; it restarts in %g s", code, pause)
            self.process_id, self._fork_at = None, now + pause

    def stop(self) -> None:
        """Send TERM. This is safe at any time, because each change of the sidecar is one atomic call."""
        if self.process_id is not None:
            send(self.process_id, signal.SIGTERM)


def run_sidecar(backend: Backend, options: Options, queues: Sequence[str], lease: float) -> int:
    """Run the loops in a forked process, until its parent has ended.

    `queues` are served whether they are listed or not. `lease` is their shortest lease, in seconds.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches all processes, and the supervisor decides
    parent = os.getppid()
    _run(backend, options, queues, lease, stopping=lambda: os.getppid() != parent)
    return 0


def move(backend: Backend, options: Options, *, allows_eviction: bool) -> None:
    """Run the loops for all listed queues in this process, until a signal ends it.

    Raises UnsafeSetup if the server evicts keys, unless `allows_eviction`, and ConfigError.
    """
    backend.prepare()
    if not allows_eviction:
        when_reachable(backend.check)
    _run(backend, options, [], options.lease_ms / 1000, stopping=lambda: False)


def move_once(backend: Backend, options: Options, *, allows_eviction: bool) -> int:
    """Run each loop once: repair all listed queues, make due jobs ready, send follow-up jobs.

    Returns the number of jobs that became ready. A damaged queue is logged and left out. Raises UnsafeSetup as `move`
    does, BackendUnavailable and OutcomeUnknown.
    """
    if not allows_eviction:
        backend.check()
    mover, relay, janitor = _loops(backend, options, [], options.lease_ms / 1000, wake_ups=None)
    janitor.step(set())
    while mover.step(set()) == 0:
        pass
    relay.step(set())
    return mover.promoted


def _run(
    backend: Backend, options: Options, queues: Sequence[str], lease: float, *, stopping: Callable[[], bool]
) -> None:
    wake_ups = backend.wake_ups()
    loops = _loops(backend, options, queues, lease, wake_ups=wake_ups)
    run_loops(loops, _sleep if wake_ups is None else partial(_wait, wake_ups), stopping)


def _loops(
    backend: Backend, options: Options, queues: Sequence[str], lease: float, *, wake_ups: WakeUps | None
) -> tuple[Mover, Relay, Janitor]:
    keeper = backend.queue_keeper(queues, name=consumer_name())
    mover = Mover(keeper, hears=lambda: wake_ups is not None and wake_ups.is_subscribed)
    janitor = Janitor(keeper, reclaim_every=lease / 3, repair_every=options.tidy_every_ms / 1000)
    return mover, Relay(keeper, mover.outboxes), janitor


def _wait(wake_ups: WakeUps, seconds: float) -> set[str]:
    """Wait for notifications, and return the queues that they name."""
    return {queue for queue, _ in wake_ups.wait(seconds)}


def _sleep(seconds: float) -> set[str]:
    time.sleep(seconds)
    return set()
