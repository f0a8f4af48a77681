"""The source of a migration on a queue of delayq's own: jobs leave it by a script, into a hash beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from delayq.core.envelope import ABSENT
from delayq.core.errors import BadEnvelope
from delayq.core.spec import Prepared, prepare_raw
from delayq.core.states import Answer, OnConflict, State
from delayq.core.views import JobInfo
from delayq.drivers.broker import Waiting
from delayq.drivers.redis_connection import RedisConnection
from delayq.redis.calls import aside
from delayq.redis.calls.aside import Aside
from delayq.redis.carrying import carry
from delayq.redis.finding import every_shard
from delayq.redis.verbs import Flow

WAITING: Final = (State.SCHEDULED, State.READY)


@dataclass(slots=True)
class _Walk:
    """How far a queue was walked through: which state, where in it, and whether this round moved anything."""

    state: int = 0
    cursor: str = ""
    moved: bool = False
    stayed: int = 0


class RedisSource:
    """Members of batches stay: their batch counts them where it is."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._client = connection.client
        self._walks: dict[str, _Walk] = {}

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

    def set_aside(self, queue: str, lot: str, count: int) -> int:
        """Walk on from where the last lot ended; again from the start, until a whole round moves nothing."""
        walk = self._walks.setdefault(queue, _Walk())
        while True:
            found = self._client.list_jobs(WAITING[walk.state], queue=queue, cursor=walk.cursor, limit=count)
            free = [job.id for job in found.jobs if not _in_a_batch(job)]
            moved = self._client.run(self._move(queue, lot, free))
            walk.moved = walk.moved or moved > 0
            walk.stayed += len(found.jobs) - len(free)
            walk.cursor = found.cursor
            if not found.cursor:
                walk.state += 1
            if walk.state == len(WAITING):
                if not walk.moved and not moved:
                    return 0
                self._walks[queue] = walk = _Walk()
            if moved:
                return moved

    def lot(self, queue: str, lot: str) -> list[Waiting]:
        """By their ids."""
        return [
            Waiting(one.id, queue, one.lot, one.envelope, one.due_ms) for one in self._aside(queue) if one.lot == lot
        ]

    def drop(self, queue: str, lot: str, jobs: Sequence[Waiting]) -> Sequence[str]:
        """Out of the hash."""
        if jobs:
            self._client.run(self._drop(queue, lot, [job.id for job in jobs]))
        return ()

    def put_back(self, queue: str, lot: str) -> int:
        """Schedule them again, each under its own id and time; one whose id was taken meanwhile stays aside."""
        return sum(self._client.run(self._put_back(queue, lot, job)) for job in self.lot(queue, lot))

    def staying(self, queue: str) -> str:
        """Members of batches."""
        stayed = self._walks.get(queue, _Walk()).stayed
        return f"{stayed} belong to batches, which count them here" if stayed else ""

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

    def _put_back(self, queue: str, lot: str, job: Waiting) -> Flow[int]:
        verbs = self._client.verbs
        try:
            ready: Prepared = prepare_raw(job.envelope, verbs.options, queue)._replace(when=str(job.due_ms))
        except BadEnvelope:
            return 0
        refs = yield from carry(verbs, [ready], OnConflict.KEEP, f"back:{lot}:{job.id}")
        if refs[0].outcome is not Answer.CREATED:
            return 0
        yield from self._drop(queue, lot, [job.id])
        return 1


def _in_a_batch(job: JobInfo) -> bool:
    return job.envelope is not None and job.envelope.batch is not ABSENT
