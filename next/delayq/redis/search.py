"""Searches for jobs in several queues. The jobs of all queues are sorted together by time.

Jobs are read ahead. If few of them are left for some shards, one round trip reads the next jobs of all these shards. A
page ends when it is full, or when 2,000 jobs were read. Its cursor is the position of the last checked job in the
common order. So the length of the cursor does not depend on the number of queues. A job that is added during a search
is found if its position is after the cursor.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from delayq.core import failure as failures
from delayq.core.errors import BackendError, CallRefused, DelayqError, NodeError, NodeUnavailable
from delayq.core.job_search import FoundJobs, JobFilter, JobSearch, filter_of, state_of
from delayq.core.views import JobInfo, JobState
from delayq.redis.calls import inspect
from delayq.redis.calls.call import MAX_BYTES, Call, value_of
from delayq.redis.calls.inspect import Row
from delayq.redis.positions import Position, before_time, position_of, read_cursor
from delayq.redis.session import Session

MAX_LOOKS: Final = 2_000
"""Maximum number of jobs that are read for a page. With more than 1,000 shards, the maximum is two jobs per shard."""

FAILURES_AT_A_TIME: Final = 50
"""Maximum number of jobs whose failures are read in one round trip. A failure can have 20 kB, and each of up to nine
earlier failures can have 20 kB too."""


class _Found(NamedTuple):
    position: Position
    queue: str
    row: Row


class _Shard:
    """One shard of a queue. `rows`: jobs that were read ahead. `after`: the cursor of list.lua for the next rows."""

    def __init__(self, queue: str, name: str, after: bytes) -> None:
        self.queue = queue
        self.name = name
        self.after = after
        self.rows: list[_Found] = []
        self.is_over = False


class Search:
    """An open search. Each call of `page` continues after the previous page."""

    def __init__(
        self,
        session: Session,
        shards: Mapping[str, Sequence[str]],
        wanted: JobFilter,
        *,
        state: JobState,
        newest_first: bool,
        position: Position | None,
    ) -> None:
        self._session = session
        self._wanted = wanted
        self._state = state
        self._newest_first = newest_first
        self._position = position
        start = position or _start_of(wanted, newest_first=newest_first)
        self._shards = [
            _Shard(queue, name, b"" if start is None else start.after(name, state=state, newest_first=newest_first))
            for queue, names in shards.items()
            for name in names
        ]
        self._ready: list[_Found] = []
        self._errors: dict[str, DelayqError] = {}
        self._left = 0
        self._at_a_time = 1

    async def page(self, limit: int) -> FoundJobs:
        """Read the next page.

        The page ends after `limit` jobs, when its envelopes and failures have reached 1 MB, or when MAX_LOOKS jobs were
        read. So a page can be empty although its cursor is not.
        """
        self._errors = {}
        held = len(self._ready) + sum(len(one.rows) for one in self._shards)
        self._left = max(MAX_LOOKS - held, 2 * len(self._open()))
        jobs: list[JobInfo] = []
        looked = size = 0
        while await self._fill(limit if self._wanted.selects_all else inspect.MAX_PAGE):
            ready, self._ready = self._ready, []
            async for number, job, job_size in self._matching(ready):
                jobs.append(job)
                size += job_size
                if len(jobs) == limit or size >= MAX_BYTES:
                    self._position, self._ready = ready[number].position, ready[number + 1 :]
                    return FoundJobs(jobs, self._cursor(), looked + number + 1, self._errors)
            self._position = ready[-1].position
            looked += len(ready)
        return FoundJobs(jobs, self._cursor(), looked, self._errors)

    def _cursor(self) -> str:
        if self._position is None or not (self._ready or self._open()):
            return ""
        return self._position.as_cursor()

    def _open(self) -> list[_Shard]:
        return [one for one in self._shards if not one.is_over]

    async def _fill(self, most: int) -> bool:
        """Read until the next jobs of the common order are known. Return False if no job is left, or the page ends."""
        self._merge()
        while not self._ready:
            if not await self._read_ahead(most):
                return False
            self._merge()
        return True

    async def _read_ahead(self, most: int) -> bool:
        """Read up to `most` jobs of each shard that has few rows. Return False if all shards or the page have ended."""
        still_open = self._open()
        empty = [one for one in still_open if not one.rows]
        if not still_open or len(empty) > self._left:
            return False
        share = max(1, MAX_LOOKS // (2 * len(still_open)))
        self._at_a_time = max(self._at_a_time, min(most, inspect.MAX_PAGE, share))
        few = [one for one in still_open if one.rows and len(one.rows) <= self._at_a_time // 2]
        reading = [*empty, *few][: self._left]
        limit = max(1, min(self._at_a_time, self._left // len(reading)))
        keys = self._session.keys
        calls = [
            inspect.list_rows(
                keys, one.name, self._state, cursor=one.after, limit=limit, newest_first=self._newest_first
            )
            for one in reading
        ]
        for one, outcome in zip(reading, await self._session.executor.run_all(calls), strict=True):
            if isinstance(outcome, CallRefused | NodeError):
                self._give_up(one, outcome)
            else:
                page = value_of(outcome)
                self._left -= len(page.rows)
                self._add(one, page.rows)
                one.after = page.cursor
                one.is_over = one.is_over or not page.cursor
        return True

    def _add(self, one: _Shard, rows: Sequence[Row]) -> None:
        """Keep rows, up to the end of the time span."""
        end_ms = self._wanted.since_ms if self._newest_first else self._wanted.until_ms
        for row in rows:
            position = position_of(one.name, row)
            if end_ms is not None and self._is_before(end_ms, position.time):
                one.is_over = True
                return
            one.rows.append(_Found(position, one.queue, row))

    def _merge(self) -> None:
        """Move all rows whose order is certain to `_ready`, and sort them.

        Later reads of an open shard return only rows after its last known row. So the order is certain up to the first
        of these last rows.
        """
        still_open = self._open()
        if not all(one.rows for one in still_open):
            return  # a shard returned only stream entries of other programs
        first = max if self._newest_first else min
        bound = first((one.rows[-1].position for one in still_open), default=None)
        for one in self._shards:
            count = sum(1 for found in one.rows if bound is None or not self._is_before(bound, found.position))
            self._ready += one.rows[:count]
            del one.rows[:count]
        self._ready.sort(reverse=self._newest_first)

    def _is_before(self, one: Any, other: Any) -> bool:
        return bool(one > other if self._newest_first else one < other)

    async def _matching(self, ready: Sequence[_Found]) -> AsyncIterator[tuple[int, JobInfo, int]]:
        """Yield each matching job with its index in `ready` and its size in bytes. Failed jobs get their failures."""
        jobs = [(number, inspect.job_of(found.queue, self._state, found.row)) for number, found in enumerate(ready)]
        fitting = [(number, self._session.with_keys(job)) for number, job in jobs if self._wanted.fits(job)]
        if self._state != "failed":
            for number, job in fitting:
                yield number, job, len(job.raw)
            return
        for start in range(0, len(fitting), FAILURES_AT_A_TIME):
            part = fitting[start : start + FAILURES_AT_A_TIME]
            records = await self._failures([ready[number] for number, _ in part])
            for number, job in part:
                raw = records.get(ready[number].position)
                if raw is not None:
                    with_failure = msgspec.structs.replace(job, failure=failures.decode(raw))
                    if self._wanted.fits_failure(with_failure):
                        yield number, with_failure, len(job.raw) + len(raw)

    async def _failures(self, part: Sequence[_Found]) -> dict[Position, bytes]:
        """Return the failure records of jobs, without the jobs of a shard that cannot be read."""
        by_shard: dict[str, list[_Found]] = {}
        for found in part:
            by_shard.setdefault(found.position.shard, []).append(found)
        calls = [
            inspect.failures_of(self._session.keys, name, [found.row.id for found in of_one])
            for name, of_one in by_shard.items()
        ]
        records: dict[Position, bytes] = {}
        outcomes = await self._session.executor.run_all(calls)
        for (name, of_one), outcome in zip(by_shard.items(), outcomes, strict=True):
            if isinstance(outcome, CallRefused | NodeError):
                self._give_up(next(one for one in self._shards if one.name == name), outcome)
            else:
                raws = value_of(outcome)
                records |= {found.position: raw or b"" for found, raw in zip(of_one, raws, strict=True)}
        return records

    def _give_up(self, one: _Shard, error: BackendError) -> None:
        """Leave out the rest of a shard that cannot be read, and report its error with the page."""
        one.is_over = True
        if isinstance(error, NodeError):
            what = f"The search is incomplete, because the queue {one.queue!r} could not be read. {error.message}"
            error = NodeUnavailable(what, hint=error.hint)
        self._errors.setdefault(one.queue, error)


async def open_search(session: Session, search: JobSearch, *, cursor: str = "") -> Search:
    """Start a search at a cursor. Raises InvalidInput.

    Raises NodeUnavailable if all queues are searched and the node of a cluster with their list does not answer.
    """
    position = read_cursor(cursor, state_of(search)) if cursor != "" else None
    trip: list[Call[Any]] = [inspect.server_time_ms()]
    if search.queues is None:
        trip.insert(0, inspect.list_queues(session.keys))
    *listed, now_ms = await session.executor.run_all(trip)
    if isinstance(now_ms, NodeError):
        now_ms = time.time_ns() // 1_000_000
    wanted = filter_of(search, value_of(now_ms))
    queues = list(dict.fromkeys(search.queues)) if search.queues is not None else value_of(listed[0])
    newest_first = search.state == "failed" if search.newest_first is None else search.newest_first
    return Search(
        session,
        await session.shards.read_all(queues),
        wanted,
        state=state_of(search),
        newest_first=newest_first,
        position=position,
    )


def _start_of(wanted: JobFilter, *, newest_first: bool) -> Position | None:
    """Return the position at which the time span begins; None = before all jobs, in the order of the search."""
    if newest_first:
        return None if wanted.until_ms is None else before_time(wanted.until_ms + 1)
    return None if wanted.since_ms is None else before_time(wanted.since_ms)
