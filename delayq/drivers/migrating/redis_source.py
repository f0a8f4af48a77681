"""The source of a migration on a queue of delayq's own: jobs leave it by a script, into a hash beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from delayq.core.errors import DelayqError
from delayq.core.spec import prepare_raw
from delayq.core.states import Answer, OnConflict, State
from delayq.drivers.broker import Waiting, WaitingPage
from delayq.drivers.migrating.batched import unless_batched
from delayq.drivers.migrating.ends import Stays
from delayq.drivers.migrating.walk import Walk
from delayq.drivers.redis_connection import RedisConnection
from delayq.redis.calls import aside
from delayq.redis.calls.aside import Aside
from delayq.redis.carrying import carry
from delayq.redis.finding import every_shard
from delayq.redis.verbs import Flow

WAITING: Final = (State.SCHEDULED, State.READY)


class RedisSource:
    """Members of batches stay: their batch counts them where it is."""

    comes_back = False

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._client = connection.client
        self._walks: dict[str, Walk] = {}
        self._members: dict[str, set[str]] = {}

    def queues(self) -> list[str]:
        """All that are known."""
        return self._client.queues()

    def waiting(self, queue: str) -> int:
        """Scheduled and ready."""
        (stats,) = self._client.stats(queue)
        return stats.scheduled + stats.ready

    def lots(self, queue: str) -> list[str]:
        """By what the hash holds."""
        return list(dict.fromkeys(one.lot for one in self._aside(queue)))

    def set_aside(self, queue: str, lot: str, count: int, stays: Stays) -> int:
        """Walk on from where the last lot ended."""
        stays_here = unless_batched(self._members.setdefault(queue, set()), stays)

        def move(jobs: Sequence[Waiting]) -> int:
            return self._client.run(self._move(queue, lot, [job.id for job in jobs]))

        walk = self._walks.setdefault(queue, Walk())
        return walk.step(partial(self._page, queue), move, count, stays_here)

    def _page(self, queue: str, cursor: str, count: int) -> WaitingPage:
        """`cursor`: the state, and where in it."""
        state, _, place = cursor.partition(" ") if cursor else (WAITING[0], "", "")
        found = self._client.list_jobs(State(state), queue=queue, cursor=place, limit=count)
        jobs = tuple(Waiting(job.id, queue, job.id, job.raw, job.due_ms or 0) for job in found.jobs)
        if found.cursor:
            return WaitingPage(jobs, f"{state} {found.cursor}")
        after = WAITING[WAITING.index(State(state)) + 1 :]
        return WaitingPage(jobs, f"{after[0]} " if after else "")

    def lot(self, queue: str, lot: str) -> list[Waiting]:
        """By their ids."""
        return [
            Waiting(one.id, queue, one.id, one.envelope, one.due_ms) for one in self._aside(queue) if one.lot == lot
        ]

    def drop(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Sequence[str]:
        """Out of the hash."""
        if jobs:
            self._client.run(self._drop(queue, lot, [job.id for job in jobs]))
        return ()

    def put_back(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Mapping[str, str]:
        """Schedule them again, each under its own id and time."""
        answers = {job.entry: self._client.run(self._put_back(queue, lot, job)) for job in jobs}
        return {entry: why for entry, why in answers.items() if why}

    def let_go(self, queue: str) -> None:
        """Nothing is held."""

    def staying(self, queue: str) -> str:
        """Members of batches."""
        members = self._members.get(queue)
        return f"{len(members)} belong to batches, which count them here" if members else ""

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _aside(self, queue: str) -> list[Aside]:
        return self._client.run(self._read(queue))

    def _read(self, queue: str) -> Flow[list[Aside]]:
        found: list[Aside] = []
        for scope in (yield from every_shard(self._client.verbs, queue)):
            found += [*(yield aside.all_aside(scope))]
        return sorted(found, key=lambda one: (one.lot, one.id))

    def _drop(self, queue: str, lot: str, ids: Sequence[str]) -> Flow[None]:
        """Which shard has which nobody remembers; what is not there is nothing to drop."""
        for scope in (yield from every_shard(self._client.verbs, queue)):
            yield aside.drop(scope, lot, ids)

    def _move(self, queue: str, lot: str, ids: Sequence[str]) -> Flow[int]:
        """A page is of one shard, so the others are asked for what it did not have: an id may have gone there since."""
        left = list(ids)
        for scope in (yield from every_shard(self._client.verbs, queue)) if ids else []:
            rest, left = left, []
            while rest:
                answers: list[bool] = yield aside.set_aside(scope, lot, rest)
                left += [job_id for job_id, moved in zip(rest, answers, strict=False) if not moved]
                rest = rest[len(answers) :]
            if not left:
                break
        return len(ids) - len(left)

    def _put_back(self, queue: str, lot: str, job: Waiting) -> Flow[str]:
        """Why it cannot be put back; '' = it is."""
        verbs = self._client.verbs
        try:
            ready = replace(prepare_raw(job.envelope, verbs.options, queue), when=str(job.due_ms))
        except DelayqError as error:
            return f"it is aside, and cannot be put back: {error.message}"
        [ref] = yield from carry(verbs, [ready], OnConflict.KEEP, f"back:{lot}:{job.id}")
        if ref.outcome is not Answer.CREATED:
            what = "id" if ref.id == job.id else "unique key"
            return f"it is aside, and its {what} was taken in {queue} meanwhile by the job {ref.id}"
        yield from self._drop(queue, lot, [job.id])
        return ""
