"""What a worker holds just now, shared between the thread that runs jobs and the one that keeps their leases.

Every delivery is in exactly one place:

    waiting ──▶ running ──▶ finished ──▶ settling ──▶ (the backend's)
       │                       ▲             │
       │ asked to stop ────────╯ ◀── failed ─╯
       ╰──────▶ returning ──▶ (the backend's)

All are renewed. What waits may be handed back; then it is *returning* until the backend has said so, because a
hand-back whose reply was lost may have worked: it can be repeated, but the job must not be started any more.

Nothing is started when the backend last confirmed the lease too long ago: a process that was
frozen wakes up with deliveries that are somebody else's by now.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from delayq.core.outcome import Ack, Outcome
from delayq.drivers.base import Delivery, Settlement

log = logging.getLogger("delayq.worker")

START_WITHIN = 2 / 3  # of a lease

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


boot_clock: Callable[[], float] = partial(time.clock_gettime, _CLOCK)
"""Seconds that also pass while the machine sleeps, where the system has such a clock."""


class Held:
    """The deliveries of one worker. All methods may be called from any thread."""

    def __init__(self, lease_s: float, clock: Callable[[], float] = boot_clock) -> None:
        self.lease_s = lease_s
        self.busy = threading.Event()
        """Set whenever something is added; whoever waits for work to look after clears it."""
        self.incomplete = False
        """Set when the backend may hold deliveries that are not in here; whoever replays them clears it."""
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[Delivery] = deque()
        self._running: Delivery | None = None
        self._running_since = 0.0
        self._finished: list[Settlement] = []
        self._settling: list[Settlement] = []
        self._returning: list[Delivery] = []
        self._confirmed = float("-inf")
        self._reads = 0

    # -- running jobs ------------------------------------------------------------------------------------------------

    def add(self, deliveries: Iterable[Delivery], sent_at: float) -> None:
        """Take deliveries that were asked for at `sent_at` (of the boot clock)."""
        with self._lock:
            self._waiting.extend(deliveries)
            self._confirmed = sent_at
            self._reads += 1
        self.busy.set()

    def replayed(self, known: Iterable[Delivery], found: Sequence[Delivery], sent_at: float, *, whole: bool) -> None:
        """Take what the backend holds, as it answered to a question sent at `sent_at`.

        `known` is what was held before the question: what left since is not taken again. With `whole`, what waits and
        was not found is somebody else's by now, and dropped.
        """
        before, there = {_key(item) for item in known}, {_key(item) for item in found}
        with self._lock:
            kept = [item for item in self._waiting if _key(item) in there] if whole else self._waiting
            self._waiting = deque([*kept, *(item for item in found if _key(item) not in before)])
            self._confirmed = sent_at
            self._reads += 1
        self.busy.set()

    def start(self) -> Delivery | None:
        """The next delivery to run; None when nothing waits, or when the leases may be over (then all are dropped)."""
        with self._lock:
            if not self._waiting:
                return None
            now = self._clock()
            if now - self._confirmed > self.lease_s * START_WITHIN:
                log.warning(
                    "this process stood still for too long; it asks anew for the %d jobs it had not started",
                    len(self._waiting),
                )
                self._waiting.clear()
                self.incomplete = True
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
        """What runs did not start after all, or was interrupted from outside: it waits again."""
        with self._lock:
            if self._running is not None:
                self._waiting.appendleft(self._running)
            self._running = None

    # -- giving up what is held --------------------------------------------------------------------------------------

    def take_finished(self) -> list[Settlement]:
        """What has to be settled; it stays held until `settled` or `unsettled` is called."""
        with self._lock:
            taken, self._finished = self._finished, []
            self._settling += taken
            return taken

    def settled(self, taken: Sequence[Settlement]) -> None:
        """These are the backend's business now."""
        with self._lock:
            self._forget_settling(taken)

    def unsettled(self, taken: Sequence[Settlement]) -> None:
        """Settling these failed, perhaps only their replies: they are finished, and tried again."""
        with self._lock:
            self._forget_settling(taken)
            self._finished = [*(Settlement(item.delivery, item.outcome, True) for item in taken), *self._finished]

    def take_waiting(self) -> list[Delivery]:
        """Everything to be handed back: what has not started, and what was taken before but is not back yet."""
        with self._lock:
            self._returning += self._waiting
            self._waiting.clear()
            return list(self._returning)

    def returned(self, taken: Iterable[Delivery]) -> None:
        """These were handed back."""
        done = {_key(item) for item in taken}
        with self._lock:
            self._returning = [item for item in self._returning if _key(item) not in done]

    # -- keeping leases ----------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[int, list[Delivery]]:
        """The number of reads so far and everything held, for a renewal that `confirm` will tell of."""
        with self._lock:
            return self._reads, self._all()

    def confirm(self, reads: int, sent_at: float) -> None:
        """The backend confirmed all leases of that snapshot to a renewal sent at `sent_at`.

        It says nothing of what was read since: that keeps the time of its own read.
        """
        with self._lock:
            if reads == self._reads:
                self._confirmed = max(self._confirmed, sent_at)

    def drop(self, lost: frozenset[tuple[str, str]]) -> None:
        """Forget what has not started and is no longer ours. What runs goes on and will find itself fenced."""
        with self._lock:
            self._waiting = deque(item for item in self._waiting if (item.queue, item.id) not in lost)
            self._returning = [item for item in self._returning if (item.queue, item.id) not in lost]

    def call_off(self, asked: frozenset[tuple[str, str]]) -> None:
        """What waits and was asked to stop is done without being started."""
        with self._lock:
            self._finished += [Settlement(item, Ack()) for item in self._waiting if (item.queue, item.id) in asked]
            self._waiting = deque(item for item in self._waiting if (item.queue, item.id) not in asked)

    # -- looking -----------------------------------------------------------------------------------------------------

    def all(self) -> list[Delivery]:
        """Everything held, in any place."""
        with self._lock:
            return self._all()

    def empty(self) -> bool:
        """Whether nothing at all is held."""
        with self._lock:
            return self._running is None and not (self._waiting or self._finished or self._settling or self._returning)

    def waiting(self) -> bool:
        """Whether something waits to be started."""
        with self._lock:
            return bool(self._waiting)

    def others(self) -> bool:
        """Whether anything is kept waiting or unsettled by the running job."""
        with self._lock:
            return bool(self._waiting or self._finished or self._returning)

    def blocked_for(self) -> float:
        """How long the running job has kept others waiting or unsettled; 0.0 when it keeps nobody."""
        with self._lock:
            if self._running is None or not (self._waiting or self._finished or self._returning):
                return 0.0
            return self._clock() - self._running_since

    def _all(self) -> list[Delivery]:
        running = [self._running] if self._running is not None else []
        ended = [item.delivery for item in (*self._finished, *self._settling)]
        return [*self._waiting, *running, *ended, *self._returning]

    def _forget_settling(self, taken: Sequence[Settlement]) -> None:
        if len(taken) == len(self._settling):  # what is settled was taken from here, so these are all of them
            self._settling = []
            return
        done = {_key(item.delivery) for item in taken}
        self._settling = [item for item in self._settling if _key(item.delivery) not in done]


def _key(delivery: Delivery) -> tuple[str, str]:
    """Entry ids are unique in their stream only."""
    return delivery.queue, delivery.entry
