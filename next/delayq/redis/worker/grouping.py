"""Cuts lists of jobs into shorter lists, each for one call: jobs of one queue, and not too many of them."""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from delayq.redis.calls.call import MAX_ROWS


class _OfQueue(Protocol):
    @property
    def queue(self) -> str: ...


T = TypeVar("T")
JobT = TypeVar("JobT", bound=_OfQueue)


def by_queue(jobs: Sequence[JobT]) -> dict[str, list[JobT]]:
    """Group jobs by queue. Each group keeps the order of the jobs."""
    groups: dict[str, list[JobT]] = {}
    for job in jobs:
        groups.setdefault(job.queue, []).append(job)
    return groups


def cut(rows: Sequence[T], size: int = MAX_ROWS) -> Iterator[Sequence[T]]:
    """Cut rows into lists of at most `size` rows."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
