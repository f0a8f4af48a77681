"""The mover: what is due goes to the stream, on time.

Any number of movers work side by side without a leader: a move is one script, and an empty look
costs Redis microseconds. Between two moves it waits *in the client*, until the next due time, a
wake-up or one second, whichever is first: a wait inside Redis ends on the server's timer, up to
100 ms late, and a wake-up may be lost. A mover that hears wake-ups looks every five seconds: one may
be lost all the same, and people write by hand.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from heapq import nsmallest

from delayq.core.errors import AWAY, InvalidName
from delayq.core.names import check_queue
from delayq.core.shards import queue_of
from delayq.drivers.base import Driver, Promotion
from delayq.loops.outage import Outage
from delayq.loops.served import OLD_S, Roll, served
from delayq.loops.troubles import Troubles

log = logging.getLogger("delayq.mover")

CEILING_S = 1.0
HEARING_S = 5.0
ROUTINE = 200
"""Queues without a known due time that are looked at in one turn; between two turns wake-ups are heard."""
BETWEEN_S = 0.002
"""Between two turns that follow each other at once: less is too short to hear anything."""
LISTLESS_S = 5.0
"""Until it is asked again which queues there are, when that node of a cluster was away: each try takes seconds."""


class Mover:
    """Promotes the due jobs of `queues`, or of all queues known when none are named.

    `owing` is told the queues in which follow-ups wait for a relay, `told` what each step did. `roll`: the list of
    queues, when another loop of the process reads it too.
    """

    name = "mover"

    def __init__(
        self,
        driver: Driver,
        queues: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        *,
        owing: Callable[[str], object] = lambda queue: None,
        told: Callable[[Promotion], object] = lambda promotion: None,
        roll: Roll | None = None,
    ) -> None:
        self._driver = driver
        self._roll = roll or Roll(driver, clock)
        self._owing = owing
        self._told = told
        self._only = tuple(queues)
        self._clock = clock
        self._wake_ups = driver.wake_ups()
        self._look_at: dict[str, float] = {}
        self._expected: set[str] = set()
        self._refresh_at = float("-inf")
        self._troubles = Troubles(log)
        self._outage = Outage()

    def run_once(self) -> float:
        """Promote one batch of every queue whose time has come; the seconds until the next one's.

        Queues with a job that is due, or that were hinted at, go first, and of the others some go in each turn: with
        thousands of them, no due job waits until all have been looked at.

        One damaged queue keeps no other from being promoted, nor does one on a node of a cluster that is away; a
        backend that cannot be reached ends the turn.
        """
        self._refresh()
        due = self._due()
        urgent = [queue for queue in due if queue in self._expected]
        routine = [queue for queue in due if queue not in self._expected]
        if len(routine) > ROUTINE:
            routine = nsmallest(ROUTINE, routine, key=self._look_at.__getitem__)
        for queue in (*urgent, *routine):
            wait_s = CEILING_S
            try:
                wait_s = self._promote(queue)
            except AWAY as error:
                self._outage.met(queue, error)
                self._troubles.tell(error, f"queue {queue}")
            except Exception as error:  # noqa: BLE001  (whatever one queue holds, the others are promoted)
                self._troubles.tell(error, f"queue {queue}")
            else:
                self._outage.served(queue)
            self._look_at[queue] = self._clock() + wait_s
        self._outage.over(self._look_at)
        left_s = max(0.0, min([*self._look_at.values(), self._refresh_at]) - self._clock())
        return max(left_s, BETWEEN_S) if len(urgent) + len(routine) < len(due) else left_s

    def promote_all(self) -> int:
        """Promote all that is due now in every queue, whatever its time; how many jobs moved.

        Raises the first error, after all queues had their turn; at once when the whole backend is away.
        """
        self._refresh()
        total, errors = 0, list[Exception]()
        for queue in self._look_at:
            try:
                while moved := (promotion := self._driver.promote(queue)).moved:
                    total += moved
            except Exception as error:
                if isinstance(error, AWAY) and not error.apart:
                    raise
                errors.append(error)
                continue
            if promotion.owed:
                self._owing(queue)
        if errors:
            raise errors[0]
        return total

    def sleep(self, seconds: float) -> None:
        """Wait for the time or a wake-up; a queue that was hinted at is looked at next."""
        hinted = self._wake_ups.wait(seconds)
        for queue in self._look_at if hinted is None else hinted:
            if queue in self._look_at:
                self._look_at[queue] = float("-inf")
            elif queue_of(queue) in self._only if self._only else _is_queue(queue):
                self._look_at[queue] = float("-inf")
                self._roll.doubt()
        self._expected |= (hinted or frozenset()) & self._look_at.keys()
        if not self._wake_ups.listening:
            soon = self._clock() + CEILING_S
            self._refresh_at = min(self._refresh_at, soon)
            self._look_at = {queue: min(at, soon) for queue, at in self._look_at.items()}

    def close(self) -> None:
        """Stop listening."""
        self._wake_ups.close()

    def _promote(self, queue: str) -> float:
        promotion = self._driver.promote(queue)
        self._told(promotion)
        if promotion.owed:
            self._owing(queue)
        if promotion.lost:
            lost = "1 job had lost its payload and was" if promotion.lost == 1 else ""
            log.error(
                "queue %s: %s moved to failed; somebody removed rows of `jobs`",
                queue,
                lost or f"{promotion.lost:,} jobs had lost their payload and were",
            )
        ceiling_s = HEARING_S if self._wake_ups.listening else CEILING_S
        if promotion.next_s is None or promotion.next_s > ceiling_s:
            self._expected.discard(queue)
            return ceiling_s
        self._expected.add(queue)
        return promotion.next_s

    def _due(self) -> list[str]:
        now = self._clock()
        return [queue for queue, at in self._look_at.items() if at <= now]

    def _refresh(self) -> None:
        """Which queues are there? A new one comes by its first wake-up; every second while there is none to hear."""
        if self._clock() < self._refresh_at:
            return
        rest_s, within_s = (OLD_S, OLD_S / 2) if self._wake_ups.listening else (CEILING_S, 0.0)
        known, fresh = served(self._roll, within_s, self._only, tuple(self._look_at), self._troubles)
        self._look_at = {queue: self._look_at.get(queue, float("-inf")) for queue in known}
        self._expected &= self._look_at.keys()
        self._refresh_at = self._clock() + (rest_s if fresh else LISTLESS_S)


def _is_queue(name: str) -> bool:
    """Hints come over a channel that anybody may write to."""
    try:
        check_queue(queue_of(name))
    except InvalidName:
        return False
    return True
