"""Lists of jobs over states and queues, filtered, page by page.

A filter on names, tags or payload costs a look at each job, so a request looks at so many jobs and no more: its page
may then be short, and the next one goes on behind what was looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from delayq.core.shards import SIGN
from delayq.core.states import State
from delayq.core.views import JobInfo
from delayq.http.cursors import Cursor, question_of
from delayq.redis.aio import AsyncClient

STATES: Final = (State.SCHEDULED, State.READY, State.RESERVED, State.FAILED, State.COMPLETED)
LOOKED_AT: Final = 5_000
MOST_CALLS: Final = 200
MOST_ROWS: Final = 500
_LAST_ID: Final = "\x7e" * 255


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which jobs. `queues` are sorted; times in epoch ms, of when a job is, or was, due, failed or is forgotten.

    `name` is a pattern ('order.*'), `tag` one of its tags.
    """

    queues: tuple[str, ...]
    states: tuple[State, ...] = STATES
    name: str | None = None
    tag: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def question(self) -> str:
        """What tells it from other questions. Which queues there are may change while somebody turns pages."""
        return question_of(self.states, self.name, self.tag, self.from_ms, self.to_ms)

    @property
    def plain(self) -> bool:
        """Whether every job of these states and queues is meant."""
        return self.name is None and self.tag is None and self.from_ms is None and self.to_ms is None

    def has(self, info: JobInfo) -> bool:
        """Whether a job of these states and queues is meant."""
        if self.name is not None and not fnmatchcase(info.name, self.name):
            return False
        if self.tag is not None and self.tag not in ((info.envelope.tags if info.envelope else None) or ()):
            return False
        at_ms = time_of(info)
        if self.from_ms is not None and (at_ms is None or at_ms < self.from_ms):
            return False
        return self.to_ms is None or (at_ms is not None and at_ms < self.to_ms)

    def start(self, state: State) -> str:
        """Where the list of that state begins: sets are ordered by time, so what lies before is passed over."""
        if self.from_ms is None or state in (State.READY, State.RESERVED):
            return ""
        return f"{self.from_ms - 1} {_LAST_ID}"

    def over(self, info: JobInfo) -> bool:
        """Whether nothing behind that job can be meant, where jobs lie in the order of their times."""
        at_ms = time_of(info)
        ordered = info.state not in (State.READY, State.RESERVED)
        return ordered and self.to_ms is not None and at_ms is not None and at_ms >= self.to_ms


def time_of(info: JobInfo) -> int | None:
    """The time that orders jobs of its state: due, failed, or to be forgotten."""
    return {State.FAILED: info.failed_ms, State.COMPLETED: info.forget_ms}.get(info.state, info.due_ms)


@dataclass(frozen=True, slots=True)
class Listed:
    """Jobs, and where the next page begins; None at the end."""

    jobs: list[JobInfo]
    next: Cursor | None


async def page(client: AsyncClient, wanted: Wanted, cursor: Cursor | None, limit: int) -> Listed:
    """The next jobs, at most `limit`. Each call asks for as many as are missing, so that none is read and left out."""
    found: list[JobInfo] = []
    looked = asked = 0
    here = cursor or _first(wanted)
    while here is not None:
        if len(found) == limit or looked >= LOOKED_AT or asked >= MOST_CALLS:
            return Listed(found, here)
        part = await client.list_jobs(here.state, queue=here.queue, cursor=here.after, limit=limit - len(found))
        found += filter(wanted.has, part.jobs)
        looked, asked = looked + len(part.jobs), asked + 1
        over = any(map(wanted.over, part.jobs)) and not part.cursor.startswith(SIGN)
        here = _next(wanted, here) if over or not part.cursor else msgspec.structs.replace(here, after=part.cursor)
    return Listed(found, None)


async def count(client: AsyncClient, wanted: Wanted, most: int) -> tuple[int, bool]:
    """How many there are, and whether that is all of them: no more than `most` are counted one by one."""
    if wanted.plain:
        stats = [one for queue in wanted.queues for one in await client.stats(queue)]
        return sum(getattr(one, state) for one in stats for state in wanted.states), True
    total, cursor = 0, None
    while total < most:
        listed = await page(client, wanted, cursor, min(MOST_ROWS, most - total))
        total, cursor = total + len(listed.jobs), listed.next
        if cursor is None:
            return total, True
    return total, False


def _first(wanted: Wanted) -> Cursor | None:
    if not wanted.queues or not wanted.states:
        return None
    state = wanted.states[0]
    return Cursor(wanted.question, wanted.queues[0], state, wanted.start(state))


def _next(wanted: Wanted, here: Cursor) -> Cursor | None:
    """The list behind that one: the next state of the queue, then the next queue; None behind the last.

    By order and not by place: a queue may have gone, or come, since the cursor was made.
    """
    places = [(queue, wanted.states.index(state), state) for queue in wanted.queues for state in wanted.states]
    now = (here.queue, wanted.states.index(here.state) if here.state in wanted.states else len(wanted.states))
    for queue, number, state in places:
        if (queue, number) > now:
            return Cursor(wanted.question, queue, state, wanted.start(state))
    return None
