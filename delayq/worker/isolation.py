"""Suspects get a process of their own: a job that kills its process then kills no other job, and stops none.

A suspect is a job that may kill its process (docs/guarantees.md says when it counts as one). A child with threads or an
event loop puts it aside: it stays pending in the backend, its lease is renewed as before, and from then on it belongs
to the supervisor, which

    makes a cell     a process that runs one job and reads nothing
    passes it on     renews it in the cell's name, so that the backend holds it for the cell, and lets the cell replay
    hands it back    when the worker pauses, or when it has waited for a whole lease: another worker may have room

So waiting writes nothing. At most `plan.cells` run at once, in the order in which they came. A job that the next vanish
fails runs when no other cell does: one that kills the whole worker would fail the others with it.
"""

from __future__ import annotations

import logging
import time
from typing import Final, NamedTuple

from delayq.core.errors import DelayqError
from delayq.drivers.base import Steward
from delayq.loops.troubles import Troubles
from delayq.worker.brood import Brood, Member
from delayq.worker.fork import Process
from delayq.worker.plan import Plan
from delayq.worker.slots import ASIDE_LAST, LOST, PUT_ASIDE, Hold, Seen, Stop, Word

log = logging.getLogger("delayq.supervisor")

RETRY_S: Final = 0.2
UNFIT_S: Final = 1.0
"""How long no cell is made after one that died before it began."""
_CLOSED: Final = (Hold.MAINTENANCE, Hold.GATE)


class _Suspect(NamedTuple):
    """A job that a child put aside, since when we know of it."""

    member: Member
    item: Seen
    since: float

    @property
    def is_last(self) -> bool:
        return self.item.phase == ASIDE_LAST


class Isolation:
    """Looks, every turn, at what the children put aside."""

    def __init__(self, plan: Plan, steward: Steward, brood: Brood) -> None:
        self._most = plan.cells
        self._steward = steward
        self._brood = brood
        self._waiting: dict[tuple[int, int, int], _Suspect] = {}
        self._chosen: dict[Member, _Suspect] = {}
        self._last: set[Member] = set()
        self._rest_until = 0.0
        self._troubles = Troubles(log)

    def step(self, others: list[Process], word: Stop, lease_s: float) -> None:
        """Make cells, pass jobs to those that are ready, hand back. `others`: processes beside the brood's."""
        if not self._most or (not self._look() and not self._chosen and not self._last):
            return
        self._see_ends()
        if time.monotonic() < self._rest_until:
            return
        try:
            self._hand_back(word, lease_s)
            for cell in list(self._chosen):
                self._pass_on(cell)
            self._make_cells(others, word)
        except (DelayqError, OSError) as error:
            self._rest_until = time.monotonic() + RETRY_S
            self._tell(error)

    def _tell(self, error: DelayqError | OSError) -> None:
        if isinstance(error, DelayqError):
            self._troubles.tell(error)
        else:
            self._rest_until = time.monotonic() + UNFIT_S
            log.error("no process can be made for a recovered job: %s; tried again in %g s", error, UNFIT_S)

    def _look(self) -> bool:
        """Find what is aside; whether anything is."""
        now, found = time.monotonic(), dict[tuple[int, int, int], _Suspect]()
        for pid, member in self._brood.members.items():
            if member.cell_of is None and not PUT_ASIDE.isdisjoint(member.slots.phases):
                for item in member.slots.read()[1]:
                    if item.phase in PUT_ASIDE:
                        key = (pid, item.slot, item.generation)
                        found[key] = self._waiting.get(key) or _Suspect(member, item, now)
        self._waiting = dict(sorted(found.items(), key=lambda one: (one[1].since, one[1].item.generation)))
        return bool(found)

    def _see_ends(self) -> None:
        """Forget cells that are gone. What one of them was chosen for and not given is still aside."""
        cells = self._brood.cells()
        for cell in [*self._chosen.keys() - cells, *self._last.difference(cells)]:
            self._last.discard(cell)
            if self._chosen.pop(cell, None) is not None and not cell.ended_itself:
                self._rest_until = time.monotonic() + UNFIT_S

    def _hand_back(self, word: Stop, lease_s: float) -> None:
        now, chosen = time.monotonic(), list(self._chosen.values())
        for one in list(self._waiting.values()):
            closed = word == Stop.PAUSE or one.member.slots.ints[Word.HOLD] in _CLOSED
            if closed or (now - one.since > lease_s and one not in chosen):
                self._steward.hand_back([one.item.claim])
                self._drop(one)

    def _drop(self, one: _Suspect) -> None:
        """Tell the child that the job is no longer its own, once the backend knows: until then it is renewed for it."""
        one.member.slots.give_order(one.item, LOST)
        self._waiting = {key: other for key, other in self._waiting.items() if other is not one}

    def _pass_on(self, cell: Member) -> None:
        if not cell.slots.floats[Word.LOOKED_AT]:
            return  # it is not connected yet
        one = self._chosen[cell]
        if one not in self._waiting.values():  # cancelled, taken back, or its child is dead
            del self._chosen[cell]
            cell.tell(Stop.DRAIN)
            return
        renewal = self._steward.renew(cell.name, [one.item.claim])
        for error in renewal.errors:
            raise error
        del self._chosen[cell]
        self._drop(one)
        if (one.item.claim.queue, one.item.claim.id) in renewal.lost:
            cell.tell(Stop.DRAIN)
        else:
            cell.slots.ints[Word.REPLAY] += 1

    def _make_cells(self, others: list[Process], word: Stop) -> None:
        chosen = list(self._chosen.values())
        for one in [waiting for waiting in self._waiting.values() if waiting not in chosen]:
            cells = self._brood.cells()
            full = len(cells) >= self._most or bool(self._last) or (one.is_last and bool(cells))
            if full or word != Stop.NO:
                return
            cell = self._brood.spawn_cell(one.member.number, others)
            self._chosen[cell] = one
            if one.is_last:
                self._last.add(cell)
            log.info(
                "job %s: a worker vanished while it held this job, so the job starts in a process of its own "
                "(child %d, process %d)",
                one.item.claim.id,
                cell.number,
                cell.process.pid,
            )
