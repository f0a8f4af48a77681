"""Lists of jobs over states and queues, filtered, page by page: one walk of `browse` after the other.

A filter on names or tags costs a look at each job, so a request looks at so many jobs and no more: its page may then be
short, and the next one goes on behind what was looked at.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from delayq.core.browsing import Sought
from delayq.core.failure_groups import FailureGroups
from delayq.core.states import State
from delayq.core.views import JobInfo
from delayq.http.cursors import Cursor, question_of
from delayq.redis.aio import AsyncClient
from delayq.redis.browse import browse, grouped, matching
from delayq.redis.whole import stats_of

STATES: Final = (State.SCHEDULED, State.READY, State.RESERVED, State.FAILED, State.COMPLETED)
LOOKED_AT: Final = 5_000
MOST_CALLS: Final = 200
MOST_ROWS: Final = 500


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs. `queues` are sorted; times in epoch ms, of when a job is, or was, due, failed or is forgotten.

    `name` is a pattern ('order.*'), `tag` one of its tags; `to_ms` itself is not meant any more.
    `signature` names a group of failed jobs (`failure_groups`).
    """

    queues: tuple[str, ...]
    states: tuple[State, ...] = STATES
    name: str | None = None
    tag: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    signature: str | None = None

    @property
    def question(self) -> str:
        """What tells it from other questions. Which queues there are may change while somebody turns pages."""
        return question_of(self.states, self.name, self.tag, self.from_ms, self.to_ms, self.signature)

    @property
    def plain(self) -> bool:
        """Whether every job of these states and queues is meant."""
        narrow = (self.name, self.tag, self.from_ms, self.to_ms, self.signature)
        return all(one is None for one in narrow)

    def holds(self, place: Cursor) -> bool:
        """Whether that list is among those that are meant: a caller may have written his cursor himself."""
        return place.queue in self.queues and place.state in self.states

    def sought(self, queue: str, state: State, limit: int, looks: int) -> Sought:
        """Its part in one state of one queue."""
        return Sought(
            state=state,
            queues=(queue,),
            name=self.name,
            tag=self.tag,
            since_ms=self.from_ms,
            until_ms=None if self.to_ms is None else self.to_ms - 1,
            limit=limit,
            looks=looks,
            signature=self.signature,
        )


@dataclass(frozen=True, slots=True)
class Listed:
    """Jobs, and where the next page begins; None at the end."""

    jobs: list[JobInfo]
    next: Cursor | None


async def page(client: AsyncClient, wanted: Wanted, cursor: Cursor | None, limit: int) -> Listed:
    """The next jobs, at most `limit`."""
    found: list[JobInfo] = []
    looked = asked = 0
    here = _first(wanted) if cursor is None else cursor if wanted.holds(cursor) else _next(wanted, cursor)
    while here is not None:
        if len(found) == limit or looked >= LOOKED_AT or asked >= MOST_CALLS:
            return Listed(found, here)
        sought = wanted.sought(here.queue, here.state, limit - len(found), LOOKED_AT - looked)
        part = await client.run(browse(client.verbs, sought, here.after))
        found += part.jobs
        looked, asked = looked + part.looked, asked + 1
        here = msgspec.structs.replace(here, after=part.cursor) if part.cursor else _next(wanted, here)
    return Listed(found, None)


async def failure_groups(client: AsyncClient, wanted: Wanted) -> FailureGroups:
    """Group the newest failed jobs that are meant; a request looks at `LOOKED_AT` of them."""
    sought = replace(wanted.sought("", State.FAILED, 1, LOOKED_AT), queues=wanted.queues, newest=True)
    return await client.run(grouped(client.verbs, sought))


async def count(client: AsyncClient, wanted: Wanted, most: int) -> tuple[int, bool]:
    """How many there are, and whether that is all of them: no more than `most` are counted one by one."""
    if wanted.plain:
        stats = await client.run(stats_of(client.verbs, wanted.queues))
        return sum(getattr(one, state) for one in stats for state in wanted.states), True
    total = 0
    for queue in wanted.queues:
        for state in wanted.states:
            sought = wanted.sought(queue, state, MOST_ROWS, sys.maxsize)
            number, exact = await client.run(matching(client.verbs, sought, most - total))
            total += number
            if not exact:
                return total, False
    return total, True


def _first(wanted: Wanted) -> Cursor | None:
    if not wanted.queues or not wanted.states:
        return None
    return Cursor(wanted.question, wanted.queues[0], wanted.states[0], "")


def _next(wanted: Wanted, here: Cursor) -> Cursor | None:
    """The list behind that one: the next state of the queue, then the next queue; None behind the last.

    By order and not by place: a queue may have gone, or come, since the cursor was made.
    """
    behind = bisect_right(wanted.queues, here.queue)
    number = wanted.states.index(here.state) + 1 if here.state in wanted.states else len(wanted.states)
    if here.queue in wanted.queues[behind - 1 : behind] and number < len(wanted.states):
        return Cursor(wanted.question, here.queue, wanted.states[number], "")
    if behind == len(wanted.queues) or not wanted.states:
        return None
    return Cursor(wanted.question, wanted.queues[behind], wanted.states[0], "")
