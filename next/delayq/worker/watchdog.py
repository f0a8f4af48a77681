"""A thread beside the handlers of a child.

While a handler runs for longer than a batch should, nothing else in the child settles or fetches. The watchdog does
what cannot wait then: it settles what is finished, hands back what was not started, interrupts what must end, and
passes on progress. It also ends the child when its supervisor has gone, because its leases are not renewed then.
"""

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from delayq.backends.protocol import DeliveryRef
from delayq.core.control_flow import JobInterrupted
from delayq.core.errors import BackendError
from delayq.worker.in_flight import PREFETCH_SECONDS, InFlight, JobInFlight

logger: Final = logging.getLogger("delayq.worker")

REPORT_EVERY: Final = 1.0
"""Seconds between two reports of progress, and between two looks at the memory of the process."""

LATE: Final = 1.0
"""If two looks of the watchdog are further apart, in seconds, the process was suspended, or a handler held the GIL."""

WAIT_FOR_TURN: Final = 2.0
"""How long a late watchdog waits for a turn of the supervisor before it raises JobTimedOut, in seconds."""


class Watchdog:
    """Looks at what is in flight every 20 ms.

    `relieve` is the child's. It takes what it settles from InFlight, under its lock, so that a job is never both
    started and handed back. `memory` is how large the process may become, in bytes.
    """

    def __init__(
        self,
        in_flight: InFlight,
        *,
        relieve: Callable[[], None],
        interrupt: Callable[[JobInFlight, JobInterrupted], None],
        store_progress: Callable[[Sequence[tuple[DeliveryRef, bytes]]], None],
        lease: float,
        memory: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._in_flight = in_flight
        self._relieve = relieve
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
        """Begin to look."""
        threading.Thread(target=self._run, name="delayq-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop looking."""
        self._stopped.set()

    def look(self) -> None:
        """Interrupt what must end, and relieve the child when a handler keeps it from its work."""
        for job, error in self._in_flight.take_interruptions(may_time_out=self._may_time_out()):
            self._interrupt(job, error)
        if self._in_flight.runs_longer_than(PREFETCH_SECONDS):
            self._relieve()
        if self._clock() >= self._report_at:
            self._report_at = self._clock() + REPORT_EVERY
            self._look_at_memory()
            self._pass_on_reports()

    def _may_time_out(self) -> bool:
        """Return False for a short time after this process was suspended.

        The supervisor was probably suspended too. With its next turn it extends all deadlines by the lost time, so that
        a job does not pay for it. If no turn comes within 2 s, the deadlines count as they are.
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
                logger.debug("the watchdog could not settle; the child tries again: %s", error)
            except Exception:
                logger.exception("the watchdog failed; it goes on")
            if os.getppid() != supervisor:
                self._leave_orphaned()

    def _leave_orphaned(self) -> None:
        """End the child before others may take what it holds: leases are not renewed without a supervisor."""
        now = self._clock()
        if self._orphaned_at is None:
            self._orphaned_at = now
            os.kill(os.getpid(), signal.SIGTERM)
        elif now >= self._orphaned_at + self._lease / 3:
            os.kill(os.getpid(), signal.SIGKILL)

    def _look_at_memory(self) -> None:
        if self._memory is not None and not self._in_flight.must_leave and resident_bytes() > self._memory:
            logger.warning("the process is larger than %d MB; it is replaced", self._memory // 1_000_000)
            self._in_flight.must_leave = True

    def _pass_on_reports(self) -> None:
        progress = self._in_flight.take_progress()
        if progress:
            self._store_progress([(job.delivery.ref, _encode(report)) for job, report in progress])


def resident_bytes() -> int:
    """Return the memory of this process (on Linux; 0 elsewhere)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _encode(report: dict[str, Any]) -> bytes:
    return json.dumps(report, default=str).encode()
