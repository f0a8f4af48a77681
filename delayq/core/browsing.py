"""Looking through jobs as a person does: some of one state, over queues, in order of time, page by page.

A cursor is the place of the last job looked at: its time, its id and its queue. Jobs that come and go meanwhile move
nobody: what was not touched is neither skipped nor shown twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from delayq.core.errors import InvalidInput
from delayq.core.failure_groups import signature_of
from delayq.core.states import State
from delayq.core.views import JobInfo

IN_ORDER: Final = frozenset({State.SCHEDULED, State.FAILED, State.COMPLETED})
"""States that are kept in the order of a time: when due, when failed, when forgotten."""


class Spot(NamedTuple):
    """Where a page ended. Spots sort as the jobs do."""

    at_ms: int
    id: str
    queue: str

    def __str__(self) -> str:
        return f"{self.at_ms} {self.id} {self.queue}"


@dataclass(frozen=True, slots=True)
class Sought:
    """Which jobs are looked for, in which queues and which order.

    `name` is a pattern ('order.*'), `tag` a whole tag. `since_ms` and `until_ms` bound the time of the state: when the
    job is due, failed, or is forgotten. `newest` begins with the latest. At most `limit` jobs make a page, and at most
    `looks` are looked at for it: a pattern that fits nothing must not read a million. `signature` names a group of
    failed jobs (`failure_groups`).
    """

    state: State
    queues: tuple[str, ...]
    name: str | None = None
    tag: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    newest: bool = False
    limit: int = 50
    looks: int = 2_000
    signature: str | None = None

    @property
    def narrow(self) -> bool:
        """Whether the envelopes have to be read to know."""
        return self.name is not None or self.tag is not None or self.signature is not None

    def has(self, info: JobInfo) -> bool:
        """Whether a job of that state is meant."""
        if self.name is not None and not fnmatchcase(info.name, self.name):
            return False
        if self.tag is not None and (info.envelope is None or self.tag not in (info.envelope.tags or ())):
            return False
        if self.signature is not None and self.signature != signature_of(info.name, info.failure):
            return False
        return self.covers(at_of(info))

    def covers(self, at_ms: int | None) -> bool:
        """Whether that time lies in the range; what has none lies in no range."""
        if at_ms is None:
            return self.since_ms is None and self.until_ms is None
        return (self.since_ms is None or at_ms >= self.since_ms) and (self.until_ms is None or at_ms <= self.until_ms)


@dataclass(frozen=True, slots=True)
class Found:
    """A page: the jobs, the cursor of the next one ('' at the end), and how many were looked at."""

    jobs: tuple[JobInfo, ...]
    cursor: str
    looked: int


def at_of(info: JobInfo) -> int | None:
    """The time that orders a job among those of its state; None when it has none."""
    return next((ms for ms in (info.failed_ms, info.forget_ms, info.due_ms) if ms is not None), None)


def read_spot(cursor: str) -> Spot | None:
    """The place a cursor names; None for ''. Raises `InvalidInput` for what is no cursor."""
    if not cursor:
        return None
    at_ms, _, rest = cursor.partition(" ")
    job_id, _, queue = rest.partition(" ")
    if not (at_ms.isascii() and at_ms.isdigit() and len(at_ms) < 17 and job_id and queue):
        raise InvalidInput("That is no place in a list.", hint="Begin again at its first page.")
    return Spot(int(at_ms), job_id, queue)
