"""How a child gets its work and gets rid of it: settle what has ended, read on, replay, hand back.

Settling and reading travel in one round trip, and only when that came back empty does it wait. A
backend may also settle while the next jobs run: then it is heard before the next read, or by the watchdog. When the
backend is away nothing is lost: outcomes are kept and settled later, and after any error while reading
the child first replays what the backend holds for it, because a reply with deliveries may have been
lost on the way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from delayq.core import envelope as envelopes
from delayq.core.errors import AWAY, BadEnvelope, DelayqError
from delayq.core.events import JobFenced
from delayq.core.outcome import Ack, told_as
from delayq.core.shards import queue_of
from delayq.drivers.base import Consumer, Delivery, Fetched, Settlement
from delayq.loops.pauses import Pauses
from delayq.loops.troubles import Troubles
from delayq.worker.afterwards import Afterwards
from delayq.worker.clock import boot_clock
from delayq.worker.held import Held
from delayq.worker.holding import Holding
from delayq.worker.listeners import Listeners
from delayq.worker.meter import Meter
from delayq.worker.slots import SETTLED, Slots, Word

log = logging.getLogger("delayq.worker")

NAP_S = 0.05
RETURN_S = 0.25
"""The longest wait of a read for a hand-back under way; one that takes longer has a server that does not answer."""


class Leave(BaseException):
    """Raised by the watchdog's nudge into a wait that nobody needs any more.

    What was under way may have worked unseen. That does no harm: outcomes lie in shared memory until they are known to
    be settled, and what the backend gave to a process that has left is handed back.
    """


class _Later(NamedTuple):
    """What was settled ahead at `since`; `ask` gives the answers."""

    finished: Sequence[Held]
    ask: Callable[[], Fetched]
    since: float


class Supply:
    """Reads and settles for one child. `read`, `catch_up` and `settle_and_leave` belong to the main thread.

    `waiting`: that thread waits for work, and may be told to stop. `calling`: it waits for an answer, and may be torn
    out of that only to leave.
    """

    def __init__(self, slots: Slots, holding: Holding, consumer: Consumer, listeners: Listeners) -> None:
        self.waiting = False
        self.calling = False
        self.replay_wanted = False
        self.outage = False
        self.bytes_read = 0
        self.afterwards = Afterwards()
        self.meter: Meter | None = None
        self._slots = slots
        self._holding = holding
        self._consumer = consumer
        self._listeners = listeners
        self._troubles = Troubles(log)
        self._pauses = Pauses()
        self._replays_seen = 0
        self._waited_in_vain = False
        self._settling = threading.Lock()
        self._later: _Later | None = None
        self._switches_seen = 0
        self._returning = threading.Lock()

    @property
    def passes_on(self) -> bool:
        """Whether the supervisor can give a delivery of this process to another one: see `Consumer.replays`."""
        return self._consumer.replays

    @property
    def disturbed(self) -> bool:
        """Whether a wait for work is under way that ought to end: the child was told something, or shall look about."""
        ints = self._slots.ints
        return self.waiting and bool(ints[Word.STOP] or ints[Word.SWITCHES] != self._switches_seen)

    def read(self, count: int, wait_s: float) -> int:
        """Settle, and take up to `count` deliveries; wait up to `wait_s` for the first. How many came."""
        if taken := self.catch_up():
            return taken
        self._hear_first()
        self._let_return()
        count = min(count, self._holding.room)
        if not count:
            self.nap(NAP_S)  # nothing can be taken until something was settled
        # After a wait that brought nothing, the next one looks as well as a fetch does. But only a fetch settles what
        # is finished, and only a fetch finds out which queue is to blame for an error.
        idle, self._waited_in_vain = self._waited_in_vain and wait_s > 0 and not self._holding.held, False
        sent_at = boot_clock()
        deliveries = () if idle else self._exchange(count)
        if not deliveries:
            self._hear_first()
        self._note_emptiness(deliveries, sent_at)
        if not deliveries and wait_s and count:
            sent_at = boot_clock()
            answer = self._answer(lambda: self._interruptible(wait_s))
            deliveries, stop = answer.deliveries, self._slots.ints[Word.STOP]  # told to stop, it does not wait
            self._waited_in_vain = not (deliveries or answer.errors or answer.garbage or stop)
            if self._waited_in_vain:
                self._note_emptiness(deliveries, sent_at)
        if deliveries:
            self._slots.floats[Word.EMPTY_AT] = 0.0
            self._slots.floats[Word.READ_AT] = sent_at
            self._slots.ints[Word.LATE_MS] = max(0, self._consumer.now_ms() - deliveries[0].due_ms)
            self.bytes_read = sum([len(item.raw) for item in deliveries])
        self.outage = False
        self._pauses.reset()
        return self._holding.add(deliveries, sent_at)

    def catch_up(self) -> int:
        """Take what the backend holds for this child unknown to it, if there is reason to ask. How many came."""
        asked = self._slots.ints[Word.REPLAY]
        if not self.replay_wanted and asked == self._replays_seen:
            return 0
        self._replays_seen, self.replay_wanted = asked, False
        known = self._holding.knows()  # before the call: what the watchdog hands back meanwhile is no news either
        sent_at = boot_clock()
        answer = self._answer(self._consumer.replay)
        unknown = [item for item in answer.deliveries if (item.queue, item.entry) not in known]
        self.replay_wanted = self.replay_wanted or answer.more or len(unknown) > self._holding.room
        self._slots.floats[Word.READ_AT] = sent_at
        return self._holding.add(unknown, sent_at)

    def settle(self) -> None:
        """Settle without reading; what cannot be settled now is kept. From any thread."""
        with self._settling:
            self._hear()
            finished = self._holding.take_finished()
            if not finished:
                return
            try:
                fetched = self._consumer.settle(_settlements(finished))
            except BaseException:
                self._holding.unsettled(finished)
                raise
            self._note(finished, fetched.settled)
            self._tell(fetched.errors)

    def unsettled_for(self) -> float:
        """How long the first of the outcomes has waited to be settled, or for its answer to be heard."""
        later = self._later
        return boot_clock() - later.since if later is not None else self._holding.unsettled_for()

    def settle_and_leave(self) -> None:
        """Settle if the backend seems to be there. What is left the supervisor finds, as long as there is time."""
        if self.outage:
            return
        self.calling = True
        try:
            self.settle()
        except DelayqError as error:
            self._troubles.tell(error)
        finally:
            self.calling = False

    def hand_back(self) -> None:
        """Give back what waits, and what could not be given back before. From any thread."""
        with self._returning:
            taken = self._holding.take_waiting()
            if taken:
                self._consumer.hand_back([held.delivery for held in taken])
                self._holding.returned(taken)

    def _let_return(self) -> None:
        """Wait for a hand-back of another thread: a job on its way to a high queue goes before those of lower ones."""
        if self._returning.locked() and self._returning.acquire(timeout=RETURN_S):
            self._returning.release()

    def nap(self, seconds: float) -> None:
        """Wait, but no longer than until the child is told something."""
        end, told = time.monotonic() + seconds, self._slots.ints[Word.STOP]
        while self._slots.ints[Word.STOP] == told and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, NAP_S))

    def failed(self, error: DelayqError) -> None:
        """Wait a little longer each time."""
        self.outage = self.outage or isinstance(error, AWAY)
        self._troubles.tell(error)
        self.nap(self._pauses.next_s())

    def complain(self, error: DelayqError) -> None:
        """Log an error, the first of a kind at once and the others now and then."""
        self._troubles.tell(error)

    def _note_emptiness(self, deliveries: Sequence[Delivery], sent_at: float) -> None:
        if not deliveries and not self._holding.held:
            self._slots.floats[Word.EMPTY_AT] = sent_at

    def _exchange(self, count: int) -> Sequence[Delivery]:
        finished = self._holding.take_finished()
        try:
            fetched = self._answer(lambda: self._consumer.fetch(_settlements(finished), count))
        except BaseException:
            self._holding.unsettled(finished)
            raise
        if fetched.later is None:
            self._note(finished, fetched.settled)
        else:
            self._later = _Later(finished, fetched.later, boot_clock())
        return fetched.deliveries

    def _hear_first(self) -> None:
        if self._later is not None:
            self.calling = True
            try:
                with self._settling:
                    self._hear()
            finally:
                self.calling = False

    def _hear(self) -> None:
        """Wait for the answers to what was settled ahead, if there are any to come. Under the lock `_settling`."""
        later, self._later = self._later, None
        if later is None:
            return
        try:
            answer = later.ask()
        except BaseException:
            self._holding.unsettled(later.finished)
            raise
        self._note(later.finished, answer.settled)
        self._tell(answer.errors)

    def _interruptible(self, wait_s: float) -> Fetched:
        """A wait that the watchdog may end when the child is told something; then `Leave` is raised here."""
        self._switches_seen = self._slots.ints[Word.SWITCHES]
        self.waiting = True
        try:
            # What ended by now is settled by the next read; what ends later is heard of by the watchdog.
            return Fetched() if self._slots.ints[Word.STOP] or self._holding.ended else self._consumer.wait(wait_s)
        finally:
            self.waiting = False

    def _answer(self, ask: Callable[[], Fetched]) -> Fetched:
        """The answer; a lost one, or one that was cut off, may have carried deliveries. Logs the trouble in it."""
        self.calling = True
        try:
            answer = ask()
        except BaseException:
            self.replay_wanted = True
            raise
        finally:
            self.calling = False
        if answer.errors:
            self.replay_wanted = self.replay_wanted or any(isinstance(error, AWAY) for error in answer.errors)
            for error in answer.errors:
                self._troubles.tell(error)
        return answer

    def _tell(self, errors: Sequence[DelayqError]) -> None:
        for error in errors:
            self._troubles.tell(error)
        for error in errors:
            if isinstance(error, AWAY):
                raise error

    def _note(self, finished: Sequence[Held], answers: Sequence[bool | None]) -> None:
        done: Sequence[Held] = finished
        kept: list[Held] = []
        if not all(answers):  # hardly ever
            done, kept = self._sorted(finished, answers)
        self._holding.settled(done)
        if kept:
            self._holding.unsettled(kept)
        if self.afterwards:
            self.afterwards.happen(done)

    def _sorted(self, finished: Sequence[Held], answers: Sequence[bool | None]) -> tuple[list[Held], list[Held]]:
        """What is settled or fenced, and what is to be settled again."""
        done: list[Held] = []
        kept: list[Held] = []
        for held, ours in zip(finished, answers, strict=True):
            (kept if ours is None else done).append(held)
            if ours is False and not self._slots.orders_for(held.slot, held.generation) & SETTLED:
                self._fenced(held)  # else its supervisor settled it, while this process stood still
        return done, kept

    def _fenced(self, held: Held) -> None:
        job = held.delivery
        self._slots.ints[Word.FENCED] += 1
        if held.resent:
            log.info("job %s: settled by an earlier try whose answer was lost, or taken back", job.id)
        else:
            log.warning("job %s: it was taken back meanwhile; its outcome here does not count", job.id)
            if self.meter is not None:
                self.meter.fenced(self.meter.place(job.queue, _name_of(job.raw)), _counted_as(held))
        if self._listeners:
            self._listeners.tell(JobFenced(job.id, queue_of(job.queue), held.resent))


def _name_of(raw: bytes) -> str:
    """Return the job name in an envelope, '' when it cannot be read."""
    try:
        return envelopes.decode(raw).name
    except BadEnvelope:
        return ""


def _counted_as(held: Held) -> str:
    """Return the word under which its end was counted, '' for a job that was cancelled before it started."""
    outcome = held.outcome
    if held.ended_as or outcome is None or (isinstance(outcome, Ack) and outcome.called_off):
        return held.ended_as
    return told_as(outcome)[0]


def _settlements(finished: Sequence[Held]) -> list[Settlement]:
    return [Settlement(held.delivery, held.outcome, held.resent) for held in finished if held.outcome is not None]
