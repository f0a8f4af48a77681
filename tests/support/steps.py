"""Links and members that write down that they ran: one handler on every queue of a story.

steps = Steps(station)
chain(steps("a"), steps("b").on_queue("mails")).dispatch()
steps.until("a", "b")
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from delayq import Discard, Fail, JobContext, Snooze
from delayq.jobs.dispatch import Dispatch, named
from delayq.jobs.unsent import Unsent
from tests.support.database_station import DatabaseStation
from tests.support.station import QUEUE, Station
from tests.support.tape import Tape
from tests.support.waiting import wait_until

QUEUES = (QUEUE, "mails", "parcels")


def elsewhere(dispatch: Dispatch) -> Dispatch:
    """One that may be sent by the forked worker alone, so the test's process must not warn of it."""
    unsent = Unsent(repr(dispatch))
    unsent.used = True
    return Dispatch(dispatch.message, dispatch.said, unsent)


class Steps:
    """The handler `step`, and what its runs left on the tape: a name, and the headers it came with."""

    def __init__(self, station: Station | DatabaseStation) -> None:
        self.station = station
        self._ran: Tape[tuple[str, dict[str, str]]] = station.tape()
        ran = self._ran

        def step(context: JobContext, name: str, does: str = "", times: int = 0) -> None:
            ran.append((name, dict(context.headers)))
            if does == "fail" or (does == "fail first" and context.attempt <= times):
                raise ValueError(f"{name} cannot")
            if does == "give up":
                raise Fail(f"{name} gives up")
            if does == "discard":
                raise Discard
            if does == "snooze" and sum(1 for other, _ in ran[:] if other == name) <= times:
                raise Snooze("10ms")

        station.handles("step", step)

    def __call__(self, name: str, does: str = "", times: int = 0, **said: Any) -> Dispatch:
        """A step of that name, not dispatched."""
        return elsewhere(named("step", {"name": name, "does": does, "times": times}).having(**said))

    @property
    def ran(self) -> list[str]:
        """The names of those that ran, in order."""
        return [name for name, _ in self._ran[:]]

    @property
    def counts(self) -> Counter[str]:
        """How often each ran."""
        return Counter(self.ran)

    def headers(self, name: str) -> dict[str, str]:
        """What the last run of a step came with."""
        return [headers for ran, headers in self._ran[:] if ran == name][-1]

    def until(self, *names: str, timeout: float = 30.0) -> None:
        """Wait until all of these have run."""
        wait_until(lambda: set(names) <= set(self.ran), timeout=timeout, what=f"{names} have run; {self.ran} have")

    def quiet(self) -> None:
        """Wait until nothing waits, runs or is to be carried in any queue."""
        wait_until(self._nothing_left, timeout=30.0, what="nothing is left to do")

    def _nothing_left(self) -> bool:
        """Twice in a row: a step that ends between two questions would be in the answer to neither of them."""
        return self._looks_empty() and self._looks_empty()

    def _looks_empty(self) -> bool:
        return self.station.idle(QUEUES)
