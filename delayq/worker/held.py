"""What a worker holds just now, shared between the thread that runs jobs and the one that keeps their leases.

Every delivery is in exactly one of four places, in this order: waiting (not started), running,
finished (its outcome is known), settling (its outcome is on the way to the backend). All four are
renewed; only what waits may be handed back.

Nothing is started when the backend last confirmed the lease too long ago: a process that was
frozen wakes up with deliveries that are somebody else's by now.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from delayq.core.outcome import Outcome
from delayq.drivers.base import Delivery, Settlement

START_WITHIN = 2 / 3  # of a lease


def boot_clock() -> float:
    """Seconds that also pass while the machine sleeps, where the system has such a clock."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Held:
    """The deliveries of one worker. All methods may be called from any thread."""

    def __init__(self, lease_s: float, clock: Callable[[], float] = boot_clock) -> None:
        self.lease_s = lease_s
        self.busy = threading.Event()
        self.stale = False
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[Delivery] = deque()
        self._running: Delivery | None = None
        self._running_since = 0.0
        self._finished: list[Settlement] = []
        self._settling: list[Settlement] = []
        self._confirmed = float("-inf")

    def add(self, deliveries: Iterable[Delivery], sent_at: float) -> None:
        """Take deliveries that were asked for at `sent_at`."""
        with self._lock:
            self._waiting.extend(deliveries)
            self._confirmed = sent_at
        self.busy.set()

    def start(self) -> Delivery | None:
        """The next delivery to run; None when nothing waits, or when the leases may be over (`stale` is set)."""
        with self._lock:
            if not self._waiting:
                return None
            now = self._clock()
            if now - self._confirmed > self.lease_s * START_WITHIN:
                self._waiting.clear()
                self.stale = True
                return None
            self._running, self._running_since = self._waiting.popleft(), now
            return self._running

    def finish(self, outcome: Outcome) -> None:
        """What runs has ended."""
        with self._lock:
            if self._running is not None:
                self._finished.append(Settlement(self._running, outcome))
            self._running = None

    def abandon(self) -> None:
        """What runs was interrupted from outside: it waits again, to be handed back."""
        with self._lock:
            if self._running is not None:
                self._waiting.appendleft(self._running)
            self._running = None

    def take_finished(self) -> list[Settlement]:
        """What has to be settled; it stays held until `settled` or `unsettled` is called."""
        with self._lock:
            taken, self._finished = self._finished, []
            self._settling += taken
            return taken

    def settled(self, taken: Sequence[Settlement]) -> None:
        """These are the backend's business now."""
        done = {id(settlement) for settlement in taken}
        with self._lock:
            self._settling = [item for item in self._settling if id(item) not in done]

    def unsettled(self, taken: Sequence[Settlement]) -> None:
        """Settling these failed; they are finished, and tried again."""
        self.settled(taken)
        with self._lock:
            self._finished = [*taken, *self._finished]

    def take_waiting(self) -> list[Delivery]:
        """Everything not started, to be handed back."""
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
            return taken

    def drop(self, lost: frozenset[tuple[str, str]]) -> None:
        """Forget what waits and is no longer ours. What runs goes on and will find itself fenced."""
        with self._lock:
            self._waiting = deque(item for item in self._waiting if (item.queue, item.id) not in lost)

    def confirm(self, sent_at: float) -> None:
        """The backend confirmed all leases to a renewal sent at `sent_at`."""
        with self._lock:
            self._confirmed = max(self._confirmed, sent_at)

    def all(self) -> list[Delivery]:
        """Everything held, in any place."""
        with self._lock:
            running = [self._running] if self._running is not None else []
            ended = [item.delivery for item in (*self._finished, *self._settling)]
            return [*self._waiting, *running, *ended]

    def blocked_for(self) -> float:
        """How long the running job has kept others waiting or unsettled; 0.0 when it keeps nobody."""
        with self._lock:
            if self._running is None or not (self._waiting or self._finished):
                return 0.0
            return self._clock() - self._running_since

    def others(self) -> bool:
        """Whether anything but the running job is held."""
        with self._lock:
            return bool(self._waiting or self._finished)
