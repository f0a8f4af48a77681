"""The watchdog of a child: a thread that does urgent work while a slow handler runs.

By default, the main thread of a child both runs handlers and talks to the backend, so it can neither settle nor fetch
while a handler runs. If a handler runs longer than 20 ms, the watchdog settles finished jobs, and hands back jobs that
have waited for more than 20 ms, so that other workers can run them.

Every 20 ms, the watchdog also interrupts handlers that exceeded their time limit or were asked to stop. Every second,
it sends progress reports and measures the memory of the process. If the supervisor has died, the watchdog ends the
child, because the leases of the child's jobs are not renewed any more.
"""

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from delayq.backends.values import DeliveryRef
from delayq.core.control_flow import JobInterrupted
from delayq.core.errors import BackendError
from delayq.worker.in_flight import PREFETCH_SECONDS, InFlight, JobInFlight

logger: Final = logging.getLogger("delayq.worker")

REPORT_EVERY: Final = 1.0
"""Interval in seconds at which progress reports are sent and the memory is measured."""

LATE: Final = 1.0
"""If more than this many seconds pass between two checks of the watchdog, the process was suspended, or a handler held
the GIL.
"""

WAIT_FOR_TURN: Final = 2.0
"""How long a late watchdog waits for a turn of the supervisor before it raises JobTimedOut, in seconds."""


class Watchdog:
    """Checks the jobs of a child every 20 ms.

    `settle_and_hand_back`: the method of Child. Because this method takes jobs out while it holds the lock of InFlight,
    a job is never both started and handed back. `interrupt`: raises an error in the handler of a job, if the runner of
    the job can do that. `lease`: shortest lease of the queues, in seconds. `memory`: how large the process may become,
    in bytes; None = any size.
    """

    def __init__(
        self,
        in_flight: InFlight,
        *,
        settle_and_hand_back: Callable[[], None],
        interrupt: Callable[[JobInFlight, JobInterrupted], None],
        store_progress: Callable[[Sequence[tuple[DeliveryRef, bytes]]], None],
        lease: float,
        memory: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._in_flight = in_flight
        self._settle_and_hand_back = settle_and_hand_back
        self._interrupt = interrupt
        self._store_progress = store_progress
        self._lease = lease
        self._memory = memory
        self._clock = clock
        self._report_at = clock() + REPORT_EVERY
        self._orphaned_at: float | None = None
        self._looked_at = clock()
        self._late_turn: int | None = None
        self._wait_until = 0.0
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="delayq-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Let the thread end."""
        self._stopped.set()

    def look(self) -> None:
        """Check the jobs once: interrupt jobs that must end, settle and hand back if a handler is slow, and report."""
        for job, error in self._in_flight.take_interruptions(may_time_out=self._may_time_out()):
            self._interrupt(job, error)
        if self._in_flight.runs_longer_than(PREFETCH_SECONDS):
            self._settle_and_hand_back()
        if self._clock() >= self._report_at:
            self._report_at = self._clock() + REPORT_EVERY
            self._check_memory()
            self._send_progress()

    def _may_time_out(self) -> bool:
        """Return False for a short time after this process was suspended.

        The supervisor was probably suspended too. In its next turn, the supervisor then extends all time limits by the
        lost time, so that no job times out because of it. If no turn comes within 2 s, the limits apply as they are.
        """
        slots, now = self._in_flight.slots, self._clock()
        if now - self._looked_at > LATE:
            self._late_turn, self._wait_until = slots.turns(), now + WAIT_FOR_TURN
        self._looked_at = now
        if self._late_turn is not None and (slots.turns() != self._late_turn or now >= self._wait_until):
            self._late_turn = None
        return self._late_turn is None

    def _run(self) -> None:
        supervisor = os.getppid()
        while not self._stopped.wait(PREFETCH_SECONDS):
            try:
                self.look()
            except BackendError as error:
                logger.debug("a call of the watchdog to the backend failed: %s", error)
            except Exception:
                logger.exception("a check of the watchdog failed; the watchdog continues")
            if os.getppid() != supervisor:
                self._leave_orphaned()

    def _leave_orphaned(self) -> None:
        """End the child before the leases of its jobs expire, because nobody renews them without a supervisor.

        The first call sends TERM to this process. A call that is at least a third of a lease later sends KILL.
        """
        now = self._clock()
        if self._orphaned_at is None:
            self._orphaned_at = now
            os.kill(os.getpid(), signal.SIGTERM)
        elif now >= self._orphaned_at + self._lease / 3:
            os.kill(os.getpid(), signal.SIGKILL)

    def _check_memory(self) -> None:
        if self._memory is not None and not self._in_flight.must_leave and resident_bytes() > self._memory:
            logger.warning("the child process is larger than %d MB; it will be replaced", self._memory // 1_000_000)
            self._in_flight.must_leave = True

    def _send_progress(self) -> None:
        progress = self._in_flight.take_progress()
        if progress:
            self._store_progress([(job.delivery.ref, _encode(report)) for job, report in progress])


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes. Outside Linux, return 0."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _encode(report: dict[str, Any]) -> bytes:
    return json.dumps(report, default=str).encode()
