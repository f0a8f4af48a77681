"""What a child holds, in its own words and in shared memory at once.

A delivery waits, runs, is finished (its outcome is known), is settled, in this order; only what waits may
be handed back. Each step is one store into the child's slots, so the supervisor can tell at any instant
what to do with each delivery if the child were dead now.

Nothing is started when its lease was last confirmed too long ago: a process that was frozen wakes up with
deliveries that are somebody else's by now.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from delayq.core.outcome import DONE, Ack, Outcome
from delayq.drivers.base import Delivery
from delayq.worker import spill
from delayq.worker.clock import boot_clock
from delayq.worker.held import Held
from delayq.worker.slots import (
    ASIDE,
    ASIDE_LAST,
    CANCEL,
    EMPTY,
    FINISHED,
    LOST,
    MAX_ID,
    RUNNING,
    SETTLED,
    SPILLED,
    Slots,
    Word,
)

log = logging.getLogger("delayq.worker")

START_WITHIN = 2 / 3  # of a lease
SUSPECT_FROM = 2
"""A job whose worker vanished that often starts alone. When a whole worker vanishes, most of its jobs are innocent."""
LOOKS_S = 1.0  # a handler that asked whether it shall stop, not longer ago, hears of it by asking
MAX_COUNT = 1 << 62
# Plain numbers: a member of an enum costs three times as much to name.
_ORDERS, _DONE, _STILL, _LAST_CALL = int(Word.ORDERS), int(Word.DONE), int(Word.STILL), int(Word.LAST_CALL)
SHUTDOWN = -1  # why a job is interrupted, beside CANCEL: the grace of the worker is nearly over


class Holding:
    """The deliveries of one child.

    `add` and `start` belong to the main thread, `finish` to whoever ran the job, all else may be called from any. What
    waits and what is finished lies in deques, whose ends are taken from and added to in one step: so a delivery goes to
    the one who starts it or to the one who hands it back, and starting takes no lock.

    `max_recoveries`: after so many vanishes the next one fails a job, so it is a suspect whatever the number. A job is
    one after its first vanish when it is among `accused` (queue and id), and in a process that runs `one_at_a_time`:
    there it delays no other job. With `trusting` no job is: this process runs one job only.
    """

    def __init__(
        self,
        slots: Slots,
        now_ms: Callable[[], int],
        clock: Callable[[], float] = boot_clock,
        *,
        max_recoveries: int = 3,
        accused: Collection[tuple[str, str]] = (),
        one_at_a_time: bool = False,
        trusting: bool = False,
    ) -> None:
        self.stale = False
        self.suspect: Held | None = None
        self._slots = slots
        self._ints, self._phases, self._started, self._soft_at = slots.ints, slots.phases, slots.started, slots.soft_at
        self._floats = slots.floats
        self._spill = spill.SpillWriter(slots)
        self._now_ms = now_ms
        self._clock = clock
        self._lock = threading.RLock()
        self._free = list(range(slots.count - 1, -1, -1))
        self._waiting: deque[Held] = deque()
        self._running: dict[int, Held] = {}
        self._finished: deque[Held] = deque()
        self._returning: list[Held] = []
        self._finished_since = 0.0
        self._moved_at = 0.0
        self._within_s = 0.0
        self._orders_seen = 0
        self._given_up: dict[tuple[str, str], float] = {}
        self._aside: list[Held] = []
        self._last_from = max_recoveries
        self._accused = accused
        first = 1 if one_at_a_time else min(SUSPECT_FROM, max(1, max_recoveries))
        self._suspect_from = MAX_COUNT if trusting else first

    @property
    def aside(self) -> int:
        """How many the supervisor shall start, each in a process of its own."""
        return len(self._aside)

    @property
    def room(self) -> int:
        """How many more deliveries there is a slot for."""
        return len(self._free)

    @property
    def running(self) -> int:
        """How many run."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """How many wait to be started."""
        return len(self._waiting)

    @property
    def ended(self) -> int:
        """How many have ended and are not being settled yet."""
        return len(self._finished)

    @property
    def held(self) -> int:
        """How many are held, in any phase."""
        return self._slots.count - len(self._free)

    def add(self, deliveries: Iterable[Delivery], sent_at: float) -> int:
        """Take deliveries that were asked for at `sent_at`; how many. More than there is room for are left alone."""
        placed: list[tuple[int, Delivery]] = []
        free = self._free
        for delivery in deliveries:
            if len(delivery.id) * 4 > MAX_ID and len(delivery.id.encode()) > MAX_ID:
                log.warning("an entry of queue %s has no id of ours; the janitor will bury it", delivery.queue)
            elif free:
                placed.append((free.pop(), delivery))
        if placed:
            self._within_s = self._slots.floats[Word.LEASE] * START_WITHIN
            generation = self._slots.write(placed)
            if not self._waiting:
                self._moved_at = sent_at
            self._waiting.extend([Held(delivery, slot, sent_at, generation) for slot, delivery in placed])
        return len(placed)

    def knows(self) -> set[tuple[str, str]]:
        """Queue and entry of everything held, and of what was lost within the last lease: it may be on its way back."""
        since = self._clock() - self._slots.floats[Word.LEASE]
        self._given_up = {place: at for place, at in self._given_up.items() if at > since}
        return {(item.claim.queue, item.claim.entry) for item in self._slots.read()[1]} | self._given_up.keys()

    def start(self, alone: Held | None = None) -> Held | None:
        """The next delivery, running from now on. None when none waits, when its lease may be over (`stale` is set),
        or when it is a suspect, a job that may kill its process (`suspect` is set). The suspect no longer
        counts as waiting: call `start` again with it as `alone`, `set_aside`, or `take_back_suspect`.
        """
        if self._ints[_ORDERS] != self._orders_seen:
            self.obey()
        if alone is not None:
            held, gone = alone, self.suspect is not alone
            self.suspect = None
            if gone:
                return None
        else:
            try:
                held = self._waiting.popleft()
            except IndexError:
                return None
            if held.delivery.recoveries and self._suspects(held.delivery):
                self.suspect = held
                return None
        now = self._clock()
        if now - held.read_at > self._within_s and not self._renewed(held, now):
            self._drop([held, *_emptied(self._waiting)])
            self.stale = True
            return None
        slot = held.slot
        self._soft_at[slot] = 0.0
        self._moved_at = now
        self._started[slot] = now - self._floats[_STILL]
        self._phases[slot] = RUNNING
        self._running[slot] = held
        return held

    def _suspects(self, item: Delivery) -> bool:
        return not item.stop and (item.recoveries >= self._suspect_from or (item.queue, item.id) in self._accused)

    def set_aside(self) -> None:
        """Leave the suspect to the supervisor, which starts it in a process of its own or hands it back."""
        held, self.suspect = self.suspect, None
        if held is not None:
            self._aside.append(held)
            last = held.delivery.recoveries >= self._last_from
            self._phases[held.slot] = ASIDE_LAST if last else ASIDE

    def take_back_suspect(self) -> None:
        """Let the suspect wait with the others again, for example to be handed back."""
        held, self.suspect = self.suspect, None
        if held is not None:
            self._waiting.appendleft(held)

    def limit(self, held: Held, seconds: float) -> None:
        """The running job may take that long; 0 = for ever."""
        if seconds:
            self._soft_at[held.slot] = self._started[held.slot] + seconds

    def finish(self, held: Held, outcome: Outcome) -> bool:
        """It has ended. False when its outcome found no room in the shared memory: settle before anything else."""
        slot, written = held.slot, True
        held.outcome = outcome
        if outcome is DONE:  # nearly always
            self._phases[slot] = FINISHED
        else:
            written = self._write(slot, outcome)
        del self._running[slot]  # first: once it is among the finished, its slot may be another's at any moment
        if not self._finished:
            self._finished_since = self._clock()
        self._finished.append(held)
        return written

    def _write(self, slot: int, outcome: Outcome) -> bool:
        record = spill.encode(outcome, self._now_ms())
        with self._lock:
            if self._spill.write(slot, record):
                self._phases[slot] = SPILLED
                return True
        self._soft_at[slot] = 0.0  # until it is settled it looks as if it ran, without a limit
        return False

    def take_finished(self) -> list[Held]:
        """What has to be settled; it stays held until `settled` or `unsettled` is called."""
        return _emptied(self._finished)

    def settled(self, taken: Sequence[Held]) -> None:
        """These are held no more."""
        self._drop(taken)

    def unsettled(self, taken: Sequence[Held]) -> None:
        """Settling these failed; they are finished, and tried again."""
        for held in taken:
            held.resent = True
        self._finished_since = self._clock()
        self._finished.extendleft(reversed(taken))

    def take_waiting(self) -> list[Held]:
        """Everything to be handed back: what has not started, and what was taken before and is not back.

        It stays held, and renewed, until `returned` is called, because a hand-back whose reply was lost can be
        repeated; but it cannot be started any more.
        """
        with self._lock:
            taken = _emptied(self._waiting)
            self._returning += taken
            return list(self._returning)

    def returned(self, taken: Sequence[Held]) -> None:
        """These were handed back."""
        with self._lock:
            back = [held for held in self._returning if held in taken]
            self._returning = [held for held in self._returning if held not in back]
        self._drop(back)

    @property
    def returning(self) -> int:
        """How many are to be handed back, or on their way."""
        return len(self._returning)

    def kept_waiting_for(self) -> float:
        """How long deliveries have waited while nothing was started; 0.0 when none waits behind running ones."""
        return self._clock() - self._moved_at if self._waiting and self._running else 0.0

    def unsettled_for(self) -> float:
        """How long the first of the outcomes has waited to be settled."""
        return self._clock() - self._finished_since if self._finished else 0.0

    def to_interrupt(self, *, late: bool = True) -> list[tuple[Held, int]]:
        """What runs and shall end: with CANCEL, SHUTDOWN, or 0 when its time is over. Each is named once.

        Without `late` timeouts are not looked at, only deadlines.
        """
        found = []
        now, last_call = self._clock(), self._ints[_LAST_CALL]
        working_now = now - self._floats[_STILL]
        for slot, held in list(self._running.items()):
            if held.told or held.interrupter is None:
                continue
            cancel = self._slots.orders_for(slot, held.generation) & CANCEL
            over = (late and 0.0 < self._soft_at[slot] <= working_now) or 0.0 < held.deadline_at <= now
            if over or last_call or (cancel and now - held.asked_at > LOOKS_S):
                held.told = True
                found.append((held, cancel or (0 if over else SHUTDOWN)))
        return found

    def stop_asked(self, held: Held) -> bool:
        """Whether somebody asked this job to stop. Who asks now and then is not torn out, but leaves by itself."""
        held.asked_at = self._clock()
        return bool(self._slots.orders_for(held.slot, held.generation) & CANCEL)

    def only_overdue(self, by_s: float) -> bool:
        """Whether all that runs was due to end `by_s` ago."""
        ends = [self._soft_at[slot] for slot in list(self._running)]
        return all(0.0 < at <= self._clock() - self._floats[_STILL] - by_s for at in ends)

    def _renewed(self, held: Held, now: float) -> bool:
        """Whether a renewal that covered it was sent recently enough."""
        epoch, renewed_at = self._slots.confirmed()
        if held.generation <= epoch:
            held.read_at = max(held.read_at, renewed_at)
        return now - held.read_at <= self._within_s

    def obey(self) -> None:
        """Forget what is lost and has not started; end what waits and is cancelled. What runs, the watchdog sees to.

        What is lost and finished stays: settling it finds that out, and says so.
        """
        with self._lock:
            self._orders_seen = self._ints[_ORDERS]
            waiting, finished = _emptied(self._waiting), _emptied(self._finished)
            orders = {held: self._slots.orders_for(held.slot, held.generation) for held in (*waiting, *finished)}
            gone = {held for held in waiting if orders[held] & LOST} | {
                held for held in finished if orders[held] & SETTLED
            }
            gone |= {held for held in self._returning if self._slots.orders_for(held.slot, held.generation) & LOST}
            self.stale = self.stale or not gone.isdisjoint(waiting)
            self._given_up |= {(held.delivery.queue, held.delivery.entry): self._clock() for held in gone}
            self._drop(list(gone))
            self._returning = [held for held in self._returning if held not in gone]
            self._finished.extendleft(held for held in reversed(finished) if held not in gone)
            self._obey_about_suspects()
            self._waiting.extend(held for held in waiting if not orders[held])
            for held in waiting:
                if orders[held] == CANCEL:
                    held.outcome = Ack(called_off=True)
                    self._write(held.slot, held.outcome)
                    self._finished.append(held)

    def _obey_about_suspects(self) -> None:
        """What is lost of them another process has, or the stream. Main thread, under the lock."""
        suspects = [*self._aside, *([] if self.suspect is None else [self.suspect])]
        gone = {held for held in suspects if self._slots.orders_for(held.slot, held.generation) & LOST}
        self._given_up |= {(held.delivery.queue, held.delivery.entry): self._clock() for held in gone}
        self._aside = [held for held in self._aside if held not in gone]
        if self.suspect in gone:
            self.suspect = None
        self._drop(list(gone))

    def _drop(self, taken: Sequence[Held]) -> None:
        """Held no more. An attempt has ended with each that did not merely wait."""
        phases, free, ended = self._phases, self._free, 0
        with self._lock:
            for held in taken:
                slot = held.slot
                if held.outcome is DONE:
                    ended += 1
                else:
                    phase = phases[slot]
                    ended += RUNNING <= phase <= SPILLED
                    if phase == SPILLED:
                        self._spill.settled()
                phases[slot] = EMPTY
                free.append(slot)
            self._ints[_DONE] += ended


def _emptied(pile: deque[Held]) -> list[Held]:
    """Everything in the deque, each taken in one step."""
    taken, pop = [], pile.popleft
    try:
        while True:
            taken.append(pop())
    except IndexError:  # that was the last one
        return taken
