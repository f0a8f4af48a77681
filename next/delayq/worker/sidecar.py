"""The sidecar of a worker: a process that the supervisor forks, like the children. It runs three loops:

    mover     makes due jobs ready
    relay     sends the follow-up jobs of ended jobs
    janitor   takes back the jobs of vanished workers, and repairs queues

`delayq move` runs the same loops without a worker.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final

from delayq.backends.protocol import Backend, QueueKeeper, WakeUps
from delayq.core.options import Options
from delayq.core.outages import Outages
from delayq.core.resting import REST, RestingQueues
from delayq.loops.janitor import Janitor
from delayq.loops.loop import run_loops
from delayq.loops.mover import Mover
from delayq.loops.relay import Relay
from delayq.worker.children import EARLY_DEATH, Pause, as_text, consumer_name
from delayq.worker.forking import fork, send, wait_for_end, without_term
from delayq.worker.start_up import when_reachable

logger: Final = logging.getLogger("delayq.worker")

LAST_PAGE: Final = 1.0
"""When a worker exits, it waits for its sidecar for at most this many seconds, because the relay may be handling a last
page of records.
"""


class Sidecar:
    """The sidecar process, as the supervisor sees it. If it ends before the worker shuts down, it is forked again.

    `main`: runs the loops and returns the exit code; None = this worker has no sidecar.
    """

    def __init__(self, main: Callable[[], int] | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._main = main
        self._clock = clock
        self._started_at = self._fork_at = 0.0
        self._pause = Pause()
        self.process_id: int | None = None

    def spawn(self) -> None:
        """Fork the process if it is missing and the pause after its last death is over."""
        now = self._clock()
        if self._main is not None and self.process_id is None and now >= self._fork_at:
            self._started_at = now
            self.process_id = fork(self._main, title="delayq-mover")

    def ended(self, process_id: int, code: int) -> None:
        """Record that a process has ended, if it was the sidecar."""
        if process_id == self.process_id:
            now = self._clock()
            pause = self._pause.after_death(is_early=now - self._started_at <= EARLY_DEATH)
            logger.warning(
                "the sidecar (mover, janitor, relay) ended with %s; a new sidecar starts in %g s, unless the worker is "
                "shutting down",
                as_text(code),
                pause,
            )
            self.process_id, self._fork_at = None, now + pause

    def stop(self) -> None:
        """Send TERM. The process ends at once, or after the page of records that the relay is handling."""
        if self.process_id is not None:
            send(self.process_id, signal.SIGTERM)

    def wait(self) -> None:
        """Wait for the end of the process, for at most LAST_PAGE seconds."""
        if self.process_id is not None:
            wait_for_end(self.process_id, LAST_PAGE)


def run_sidecar(backend: Backend, options: Options, queues: Sequence[str], lease: float) -> int:
    """Run the loops in a forked process until TERM arrives or the parent of the process has ended.

    `queues`: queues to serve even if they are not in the list of queues. `lease`: shortest lease of these queues, in
    seconds.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C may reach all processes; only the supervisor reacts
    parent = os.getppid()
    _run(backend, options, queues, lease, stopping=lambda: os.getppid() != parent, undisturbed=without_term)
    return 0


def move(
    backend: Backend, options: Options, *, allows_eviction: bool, undisturbed: AbstractContextManager[object]
) -> None:
    """Run the loops for all listed queues in this process, until a signal ends the process.

    `undisturbed`: a context manager that keeps signals from ending the process, while the relay handles a page of
    records.

    Raises UnsafeSetup if the server evicts keys, unless `allows_eviction` is True. Raises BackendUnavailable if the
    embedded server does not start, and ConfigError if the url cannot be used. Raises LoginRefused if the server refuses
    the login at the start, or if it later has refused the login for a minute.
    """
    backend.prepare()
    first: Callable[[], object] = backend.check
    if allows_eviction:
        first = backend.queue_keeper([], name=consumer_name()).queues
    when_reachable(first)
    _run(
        backend,
        options,
        [],
        options.lease_ms / 1000,
        stopping=lambda: False,
        undisturbed=lambda: undisturbed,
        gives_up=True,
    )


def move_once(backend: Backend, options: Options, *, allows_eviction: bool) -> tuple[int, bool]:
    """Run each loop once for all listed queues: take jobs back and repair, make due jobs ready, send follow-up jobs.

    Returns the number of jobs that became ready, and True if no call for a queue or for the list of queues has failed;
    the reason for False is logged. Raises UnsafeSetup if the server evicts keys, unless `allows_eviction` is True.
    Raises BackendUnavailable or OutcomeUnknown if the server does not answer.
    """
    if not allows_eviction:
        backend.check()
    keeper = backend.queue_keeper([], name=consumer_name())
    mover, relay, janitor = _loops(keeper, options, options.lease_ms / 1000, wake_ups=None, rest=0.0)
    janitor.step(set())
    while mover.step(set()) == 0:
        pass
    while relay.step(set()) == 0:
        pass
    failures = mover.resting.failures + relay.resting.failures + janitor.resting.failures
    return mover.promoted, keeper.has_all_queues and not failures


def _run(
    backend: Backend,
    options: Options,
    queues: Sequence[str],
    lease: float,
    *,
    stopping: Callable[[], bool],
    undisturbed: Callable[[], AbstractContextManager[object]],
    gives_up: bool = False,
) -> None:
    wake_ups = backend.wake_ups()
    keeper = backend.queue_keeper(queues, name=consumer_name())
    loops = _loops(keeper, options, lease, wake_ups=wake_ups, undisturbed=undisturbed)
    wait = _sleep if wake_ups is None else partial(_wait, wake_ups, loops[0])
    run_loops(loops, wait, stopping, gives_up=gives_up)


def _loops(
    keeper: QueueKeeper,
    options: Options,
    lease: float,
    *,
    wake_ups: WakeUps | None,
    undisturbed: Callable[[], AbstractContextManager[object]] = nullcontext,
    rest: float = REST,
) -> tuple[Mover, Relay, Janitor]:
    outages = Outages()
    of_mover, of_janitor, of_relay = [RestingQueues(outages=outages, seconds=rest) for _ in range(3)]
    mover = Mover(keeper, hears=lambda: wake_ups is not None and wake_ups.is_subscribed, resting=of_mover)
    janitor = Janitor(keeper, reclaim_every=lease / 3, repair_every=options.tidy_every_ms / 1000, resting=of_janitor)
    relay = Relay(keeper, mover.outboxes, undisturbed=undisturbed, resting=of_relay)
    return mover, relay, janitor


def _wait(wake_ups: WakeUps, mover: Mover, seconds: float) -> set[str]:
    """Wait for notifications from scripts, and return the queues that they name.

    When the subscription begins or is lost, return all queues of the mover, because notifications may have been missed
    while there was no subscription.
    """
    was_subscribed = wake_ups.is_subscribed
    hinted = {queue for queue, _ in wake_ups.wait(seconds)}
    return hinted if wake_ups.is_subscribed == was_subscribed else hinted | mover.queues


def _sleep(seconds: float) -> set[str]:
    time.sleep(seconds)
    return set()
