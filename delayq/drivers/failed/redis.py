"""Failed jobs of any connection, kept in a Redis: a hash of their records, and a sorted set of when they failed.

The record is written before it is listed, and taken off the list before it is removed: whoever dies in between leaves a
row that nobody sees, and that the next `add` of the same job writes over. So no script is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from delayq.core.options import Options
from delayq.drivers.failed.records import Mark, decode, encode, mark_of
from delayq.drivers.failed_store import EVERYTHING, FailedJob, FailedPage, FailedQuery
from delayq.redis.calls.call import Command, text
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.keys import FailedKeys
from delayq.redis.verbs import Flow

AT_ONCE: Final = 500
_Listed = list[Mark]


class RedisFailedStore:
    """A `FailedStore` under the prefix of `options`."""

    def __init__(self, connector: Connector, options: Options) -> None:
        self._client = Client(connector, options)
        self._keys = FailedKeys(options.prefix)

    def add(self, job: FailedJob) -> None:
        """Keep a job."""
        self._client.run(self._add(job))

    def get(self, job_id: str) -> FailedJob | None:
        """The job of that id."""
        return self._client.run(self._rows([job_id]))[0]

    def page(self, query: FailedQuery = EVERYTHING, *, cursor: str = "", count: int = 100) -> FailedPage:
        """Up to `count` jobs; the cursor is the time and the id of the last one."""
        return self._client.run(self._page(query, mark_of(cursor), count))

    def count(self, query: FailedQuery = EVERYTHING) -> int:
        """How many are meant; those of a time are counted by Redis, others are read."""
        if query.name is None and query.connection is None and query.queue is None:
            return self._client.run(self._between(query))
        total, cursor = 0, ""
        while True:
            page = self.page(query, cursor=cursor, count=AT_ONCE)
            total, cursor = total + len(page.jobs), page.cursor
            if not cursor:
                return total

    def forget(self, job_ids: Sequence[str]) -> int:
        """Remove these, in steps."""
        steps = (job_ids[start : start + AT_ONCE] for start in range(0, len(job_ids), AT_ONCE))
        return sum(self._client.run(self._forget(step)) for step in steps)

    def prune(self, before_ms: int) -> int:
        """Remove what failed before that time, in steps."""
        total = 0
        while old := self._client.run(self._listed("-inf", f"({before_ms}", 0)):
            total += self.forget([mark.id for mark in old])
        return total

    def close(self) -> None:
        """Close the connections; the store may be used again."""
        self._client.close()

    def _add(self, job: FailedJob) -> Flow[None]:
        yield Command(("HSET", self._keys.rows, job.id, encode(job)), int)
        yield Command(("ZADD", self._keys.at, job.failed_ms, job.id), int)

    def _forget(self, job_ids: Sequence[str]) -> Flow[int]:
        gone: int = yield Command(("ZREM", self._keys.at, *job_ids), int)
        yield Command(("HDEL", self._keys.rows, *job_ids), int)
        return gone

    def _between(self, query: FailedQuery) -> Flow[int]:
        until = "+inf" if query.until_ms is None else query.until_ms
        found: int = yield Command(("ZCOUNT", self._keys.at, query.since_ms, until), int, True)
        return found

    def _page(self, query: FailedQuery, after: Mark, count: int) -> Flow[FailedPage]:
        """Goes on from the time of the last one seen, and skips those of that very time it has seen already."""
        jobs: list[FailedJob] = []
        first, skip = max(after.failed_ms, query.since_ms), 0
        until = "+inf" if query.until_ms is None else str(query.until_ms)
        while True:
            marks = yield from self._listed(str(first), until, skip)
            fresh = [mark for mark in marks if mark > after]
            rows = yield from self._rows([mark.id for mark in fresh])
            for mark, job in zip(fresh, rows, strict=True):
                if job is not None and query.has(job):
                    if len(jobs) == count:
                        return FailedPage(tuple(jobs), after.cursor())
                    jobs.append(job)
                    after = mark
            if len(marks) < AT_ONCE:
                return FailedPage(tuple(jobs), "")
            at = marks[-1].failed_ms
            skip = sum(mark.failed_ms == at for mark in marks) + (skip if at == first else 0)
            first = at

    def _listed(self, first: str, until: str, skip: int) -> Flow[_Listed]:
        words = ("ZRANGE", self._keys.at, first, until, "BYSCORE", "LIMIT", skip, AT_ONCE, "WITHSCORES")
        found: _Listed = yield Command(words, _marks, True)
        return found

    def _rows(self, job_ids: Sequence[str]) -> Flow[list[FailedJob | None]]:
        if not job_ids:
            return []
        raw: list[bytes | None] = yield Command(("HMGET", self._keys.rows, *job_ids), list, True)
        where = f"A row of {self._keys.rows}"
        return [None if row is None else decode(row, where) for row in raw]


def _marks(reply: Iterable[Any]) -> _Listed:
    """Pairs, nested or flat: versions of the protocol differ."""
    items = list(reply)
    if items and not isinstance(items[0], (bytes, str)):
        pairs = [(item[0], item[1]) for item in items]
    else:
        pairs = list(zip(items[::2], items[1::2], strict=True))
    return [Mark(int(float(at)), text(member)) for member, at in pairs]
