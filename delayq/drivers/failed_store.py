"""Where failed jobs go whose backend keeps none itself: the protocol of the stores, and what they hold.

A store is a place of its own (a table, a file, a Redis), apart from the queue, as Laravel's failed-job providers are.

    worker   add(job), then the job leaves its queue        in this order: lost is worse than twice
    people   page, get, count; forget, prune
    retry    get, push over the job's own connection, forget    in this order; again after a crash is the same job

Several processes use one store at once. All methods raise `BackendError` when the place fails, and `ConfigError` when
it is not there (a missing table, a folder that cannot be written), with the next step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from delayq.core.failure import Failure


class FailedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One failed job. `payload` is what its backend held, byte for byte: an envelope, or a foreign payload.

    `id` is the job's own (Laravel's uuid) and the key of the store. `failed_ms` is epoch ms.
    """

    id: str
    connection: str
    queue: str
    name: str
    payload: bytes
    failure: Failure
    failed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedQuery:
    """Which failed jobs are meant. What is left out narrows nothing; `name` is a pattern such as 'order.*'."""

    name: str | None = None
    connection: str | None = None
    queue: str | None = None
    since_ms: int = 0
    until_ms: int | None = None

    def has(self, job: FailedJob) -> bool:
        """Whether a job is meant; for stores that cannot ask their place."""
        return (
            (self.name is None or fnmatchcase(job.name, self.name))
            and (self.connection is None or job.connection == self.connection)
            and (self.queue is None or job.queue == self.queue)
            and self.since_ms <= job.failed_ms
            and (self.until_ms is None or job.failed_ms <= self.until_ms)
        )


EVERYTHING = FailedQuery()


class FailedPage(NamedTuple):
    """Some failed jobs, the oldest first, and the cursor of the next page ('' at the end)."""

    jobs: tuple[FailedJob, ...]
    cursor: str


class FailedStore(Protocol):
    """Keeps failed jobs. May be used from several threads."""

    def add(self, job: FailedJob) -> None:
        """Keep a job, durably when this returns. One of the same id is replaced, so adding again does no harm."""

    def get(self, job_id: str) -> FailedJob | None:
        """The job of that id, whole."""

    def page(self, query: FailedQuery = EVERYTHING, *, cursor: str = "", count: int = 100) -> FailedPage:
        """Up to `count` jobs; jobs that fail meanwhile come later, none is shown twice."""

    def count(self, query: FailedQuery = EVERYTHING) -> int:
        """How many are meant."""

    def forget(self, job_ids: Sequence[str]) -> int:
        """Remove these; how many were there."""

    def prune(self, before_ms: int) -> int:
        """Remove what failed before that time (epoch ms); how many. In bounded steps where the place needs it."""

    def close(self) -> None:
        """Close what is open; the store may be used again."""


@runtime_checkable
class TellsQueues(Protocol):
    """A store that knows the queues without reading every job."""

    def queues(self, connection: str) -> list[str]:
        """Those that failed jobs of that connection came from."""


@runtime_checkable
class LooksFirst(Protocol):
    """A store that can tell before the first failure whether it could keep one; others are asked for a job."""

    def ready(self) -> None:
        """Raises `BackendError` or `ConfigError` when it could not."""
