"""A child's main thread, turn after turn: read, hand out to the crews, until it shall leave."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from delayq.core.errors import DelayqError
from delayq.core.outcome import Outcome
from delayq.worker.attempt import Attempt, Attempts
from delayq.worker.clock import boot_clock
from delayq.worker.crew import Crew
from delayq.worker.held import Held
from delayq.worker.holding import Holding
from delayq.worker.options import WorkerOptions
from delayq.worker.prefetch import WORTH_S, Prefetch
from delayq.worker.slots import Slots, Stop, Word
from delayq.worker.supply import Leave, Supply

log = logging.getLogger("delayq.worker")

LOOK_AGAIN_S = 0.05
HEAR_S = 0.01
MOST_ASIDE = 100
MANY = 1_000_000_000
# A sleep of a second or more says that there is no need to look more often.
WHOLE_SLEEP_S = 1.0
LONGEST_S = 5.0
_STOP = int(Word.STOP)


def _always() -> bool:
    return True


class Turns:
    """The work of one child. `sync` and `loop` run the handlers; `bell` rings when a place became free.

    `cells`: the supervisor starts suspects, each in a process of its own, where the backend can pass them on.
    """

    def __init__(
        self,
        slots: Slots,
        holding: Holding,
        supply: Supply,
        attempts: Attempts,
        options: WorkerOptions,
        *,
        cells: bool = False,
    ) -> None:
        self.bell = threading.Event()
        self.sync: Crew
        self.loop: Crew | None = None
        self.inline: Crew | None = None
        self.may_fetch: Callable[[], bool] = _always
        self._slots = slots
        self._holding = holding
        self._supply = supply
        self._attempts = attempts
        self._options = options
        self._prefetch = Prefetch()
        self._jobs_left = MANY
        self._cells = cells

    def work(self, jobs: int) -> None:
        """Go on until told to leave, or until `jobs` were started (0 = no limit)."""
        self._jobs_left = jobs or MANY
        while self._slots.ints[_STOP] != Stop.DRAIN and self._jobs_left > 0 and not self._spoilt():
            try:
                self._turn()
            except DelayqError as error:
                self._supply.failed(error)
                continue
            except Leave:  # told something while nothing was under way, as far as this process knows
                self._supply.replay_wanted = True
                continue
            if self._options.once:
                return

    def work_one(self) -> None:
        """Run the delivery that the supervisor passes to this process, and nothing else."""
        ints = self._slots.ints
        while ints[_STOP] != Stop.DRAIN:
            told = ints[Word.REPLAY]
            try:
                if self._supply.catch_up():
                    self._hand_out()
                    self._see_it_end()
                    self._supply.hand_back()  # not started, because the worker was told to pause or to stop
                    return
            except DelayqError as error:
                self._supply.failed(error)
                continue
            except Leave:
                self._supply.replay_wanted = True
                continue
            if told and not self._supply.replay_wanted:
                return  # it was passed on, and taken back since
            self._wait(HEAR_S)

    def close(self) -> None:
        """End the crews."""
        self.sync.close()
        if self.loop is not None:
            self.loop.close()

    def drain(self, overdue_s: float) -> None:
        """Wait for what runs, but not for what should have ended `overdue_s` ago; settle."""
        while self._awaits_cells() or (self._holding.running and not self._holding.only_overdue(overdue_s)):
            self._wait(LOOK_AGAIN_S)
        self._supply.settle_and_leave()

    def _awaits_cells(self) -> bool:
        """Whether the supervisor shall still start something that was put aside, and this process may stay so long."""
        if not self._holding.aside or self._slots.ints[_STOP] == Stop.DRAIN:
            return False
        self._holding.obey()
        return self._holding.aside > 0

    def _turn(self) -> None:
        if self._shall_rest():
            self._pause()
            return
        room = self._room()
        if room <= 0:
            self._wait(WORTH_S)
            return
        if self._holding.aside:
            self._holding.obey()
        if self._holding.waiting or self._holding.suspect:  # what an error kept from being handed out
            self._hand_out()
        elif taken := self._supply.read(min(room, self._jobs_left), self._patience()):
            started = time.perf_counter()
            self._hand_out()
            self._prefetch.observe(taken, time.perf_counter() - started, self._supply.bytes_read)
        elif self._options.stop_when_empty and not self._options.once:
            self._supply.nap(LOOK_AGAIN_S)

    def _hand_out(self) -> None:
        holding, ints = self._holding, self._slots.ints
        while not ints[_STOP] and self._jobs_left > 0 and not self._attempts.out_of_memory:
            held = holding.start()
            if held is not None:
                self._begin(held)
            elif holding.suspect is None:
                break
            elif self._cells and self._supply.passes_on and holding.aside < MOST_ASIDE:
                self._jobs_left -= 1
                holding.set_aside()
            else:
                self._run_alone(holding.suspect)
        if self.loop is not None:
            self.loop.flush()
        if holding.stale:
            log.warning("leases may be over of jobs this process had not started; it drops them and asks again")
            holding.stale, self._supply.replay_wanted = False, True

    def _begin(self, held: Held) -> None:
        self._jobs_left -= 1
        attempt = self._attempts.prepare(held)
        if not isinstance(attempt, Attempt):
            self._end_unrun(held, attempt)
            return
        crew = self.sync
        if self.loop is not None and attempt.handler.is_async:
            crew = self.loop
        if crew is not self.inline and crew.room() <= 0:
            self._wait_for_room(crew)
        held.interrupter = crew.interrupt
        self._holding.limit(held, attempt.limit_s)
        crew.start(held, attempt)
        if self._options.rest_ms:
            crew.flush()
            self._supply.settle()
            self._supply.nap(self._options.rest_ms / 1000)

    def _wait_for_room(self, crew: Crew) -> None:
        crew.flush()
        while crew.room() <= 0:
            self._wait(WORTH_S)

    def _end_unrun(self, held: Held, outcome: Outcome) -> None:
        if not self._holding.finish(held, outcome):
            self._supply.settle()

    def _run_alone(self, suspect: Held) -> None:
        """Start a suspect when nothing else is held: if it kills this process, it kills no other job.

        Nothing is read meanwhile, so the wait ends with the jobs that run.
        """
        if self.loop is not None:
            self.loop.flush()
        self._supply.hand_back()
        while self._holding.running and not self._slots.ints[_STOP]:
            self._wait(LOOK_AGAIN_S)
        if self._holding.running:
            return
        self._supply.settle()
        held = self._holding.start(alone=suspect)
        if held is not None:
            self._begin(held)
            self._see_it_end()

    def _see_it_end(self) -> None:
        if self.loop is not None:
            self.loop.flush()
        while self._holding.running and self._slots.ints[_STOP] != Stop.DRAIN:
            self._wait(LOOK_AGAIN_S)

    def _room(self) -> int:
        rooms = [self.sync.room()] if self.inline is None else [self._prefetch.count()]
        if self.loop is not None:
            rooms.append(self.loop.room())
        if self._options.rest_ms:
            rooms.append(1)
        return min(rooms)

    def _patience(self) -> float:
        """How long a read may wait for the first delivery.

        Who has nothing else to see to waits longer, where the backend tells it what it would look for; but no longer
        than a part of the lease, as what comes at the end may start only early in it.
        """
        options = self._options
        if options.once or options.stop_when_empty:
            return 0.0
        sleep_s = options.sleep_ms / 1000
        if sleep_s < WHOLE_SLEEP_S or self._holding.held or self.may_fetch is not _always:
            return sleep_s
        return max(sleep_s, min(LONGEST_S, self._slots.floats[Word.LEASE] / 6))

    def _spoilt(self) -> bool:
        if self._attempts.out_of_memory:
            log.error("a handler ran out of memory; this process is not to be trusted any more and is replaced")
        return self._attempts.out_of_memory

    def _pause(self) -> None:
        """Give back what has not started, settle what ends, and read nothing.

        A worker that shall stop when there is nothing to do does so behind a closed gate too, as in Laravel.
        """
        self._supply.catch_up()
        self._holding.take_back_suspect()
        self._supply.hand_back()
        while not self._options.once and self._shall_rest():
            self._supply.settle()
            self._holding.obey()
            if not self._slots.ints[_STOP] and not self._holding.held:
                self._slots.floats[Word.EMPTY_AT] = boot_clock()
            self._wait(LOOK_AGAIN_S)

    def _shall_rest(self) -> bool:
        stop = self._slots.ints[_STOP]
        return stop == Stop.PAUSE or (not stop and not self.may_fetch())

    def _wait(self, seconds: float) -> None:
        self.bell.wait(seconds)
        self.bell.clear()
