"""A child's main thread: settle what has ended, read on, hand the work to the crews.

Settling and reading travel in one round trip, and only when that came back empty does it wait. When the
backend is away nothing is lost: outcomes are kept and settled later, and after any error while reading
the child first replays what the backend holds for it, because a reply with deliveries may have been
lost on the way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from delayq.core.errors import BackendError
from delayq.core.events import JobFenced
from delayq.drivers.base import Consumer, Delivery, Settlement
from delayq.loops.log_limit import LogLimit
from delayq.worker.clock import boot_clock
from delayq.worker.holding import Held, Holding
from delayq.worker.slots import Slots, Word
from delayq.worker.teller import Teller

log = logging.getLogger("delayq.worker")

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0


class Leave(BaseException):
    """Raised by the watchdog's nudge into a wait that nobody needs any more."""


class Intake:
    """Reads and settles for one child. `fetch`, `wait` and `replay` belong to the main thread."""

    def __init__(self, slots: Slots, holding: Holding, consumer: Consumer, tell: Teller) -> None:
        self.waiting = False
        self.replay_wanted = False
        self.outage = False
        self.bytes_read = 0
        self._slots = slots
        self._holding = holding
        self._consumer = consumer
        self._tell = tell
        self._log_limit = LogLimit()
        self._failures = 0
        self._replays_seen = 0
        self._resent: set[int] = set()
        self._fenced = 0
        self._settling = threading.Lock()

    def read(self, count: int, wait_s: float) -> int:
        """Settle, and take up to `count` deliveries; wait up to `wait_s` for the first. How many came."""
        if taken := self.catch_up():
            return taken
        count = min(count, self._holding.room)
        finished = self._holding.take_finished()
        sent_at = boot_clock()
        deliveries = self._exchange(finished, count)
        if not deliveries and not self._holding.held:
            self._slots.floats[Word.EMPTY_AT] = sent_at
        if not deliveries and wait_s and count:
            sent_at = boot_clock()
            deliveries = self.interruptible(lambda: self._consumer.wait(wait_s))
        if deliveries:
            self._slots.floats[Word.EMPTY_AT] = 0.0
            self.bytes_read = sum([len(item.raw) for item in deliveries])
        self._failures, self.outage = 0, False
        return self._holding.add(deliveries, sent_at)

    def catch_up(self) -> int:
        """Take what the backend holds for this child unknown to it, if there is reason to ask. How many came."""
        wanted = self.replay_wanted or self._slots.ints[Word.REPLAY] != self._replays_seen
        return self._replay() if wanted else 0

    def settle(self) -> None:
        """Settle without reading; what cannot be settled now is kept. From any thread."""
        with self._settling:
            finished = self._holding.take_finished()
            if not finished:
                return
            try:
                ours = self._consumer.settle(_settlements(finished))
            except BackendError:
                self._keep(finished)
                raise
            self._settled(finished, ours)

    def hand_back(self, keep: Held | None = None) -> None:
        """Give back what waits, but for `keep`. From any thread; what is on the way back cannot be started."""
        taken = self._holding.take_waiting(keep)
        if not taken:
            return
        try:
            self._consumer.hand_back([held.delivery for held in taken])
        except BackendError:
            # Whether they are still ours, nobody knows now: ask later, and start none of them unasked.
            self.replay_wanted = True
            raise
        finally:
            self._holding.settled(taken)

    def interruptible(self, wait: Callable[[], list[Delivery]]) -> list[Delivery]:
        """A wait that the watchdog may end when the child shall leave; then `Leave` is raised here."""
        self.waiting = True
        try:
            return [] if self._slots.ints[Word.STOP] else wait()
        finally:
            self.waiting = False

    def nap(self, seconds: float) -> None:
        """Wait, but not after a stop was asked for."""
        end = time.monotonic() + seconds
        while not self._slots.ints[Word.STOP] and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))

    def failed(self, error: BackendError) -> None:
        """Wait a little longer each time; afterwards ask first for what may have been delivered meanwhile."""
        self.replay_wanted = self.outage = True
        self._failures += 1
        self.complain(error)
        self.nap(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(self._failures - 1, 10)))

    def complain(self, error: BackendError) -> None:
        """Log an error, the first of a kind at once and the others now and then."""
        if hidden := self._log_limit.may_log(type(error).__name__):
            log.warning("%s (%d times)", error, hidden)

    def _exchange(self, finished: list[Held], count: int) -> list[Delivery]:
        try:
            fetched = self._consumer.fetch(_settlements(finished), count)
        except BaseException:
            self._keep(finished)
            raise
        self._settled(finished, fetched.settled)
        return fetched.deliveries

    def _replay(self) -> int:
        """What the backend holds for this child and the child does not know of."""
        self._replays_seen, self.replay_wanted = self._slots.ints[Word.REPLAY], False
        known = self._holding.knows()  # before the call: what the watchdog hands back meanwhile is no news either
        sent_at = boot_clock()
        try:
            pending = self._consumer.replay()
        except BackendError:
            self.replay_wanted = True
            raise
        unknown = [item for item in pending if (item.queue, item.entry) not in known]
        self.replay_wanted = len(unknown) > self._holding.room
        return self._holding.add(unknown, sent_at)

    def _settled(self, finished: Sequence[Held], ours: Sequence[bool]) -> None:
        for held, mine in zip(finished, ours, strict=True):
            resent = held.slot in self._resent
            self._resent.discard(held.slot)
            if not mine:
                self._tell_fenced(held.delivery, resent)
        self._holding.settled(finished)

    def _tell_fenced(self, job: Delivery, resent: bool) -> None:
        self._fenced += 1
        self._slots.ints[Word.FENCED] = self._fenced
        if resent:
            log.info("job %s: settled already, or taken back", job.id)
        else:
            log.warning("job %s: it was taken back; its outcome here does not count", job.id)
        self._tell(JobFenced(job.id, job.queue, resent))

    def _keep(self, finished: Sequence[Held]) -> None:
        self._resent |= {held.slot for held in finished}
        self._holding.unsettled(finished)


def _settlements(finished: Sequence[Held]) -> list[Settlement]:
    return [Settlement(held.delivery, held.outcome) for held in finished if held.outcome is not None]
