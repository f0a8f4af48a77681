"""The number of shards of each queue, as a client knows it, and the choice of the shard for a job.

A client remembers the number of shards of a queue. It reads the number again if a script answers with another number,
and before it reports an id as unknown. All shards store the number, but only the number in the first shard is valid.
During a change, the shards store the old number plus `calls.shards.CHANGING`.
"""

import time
from collections.abc import Sequence
from typing import Final

from delayq.core.errors import BackendError, BackendUnavailable
from delayq.core.shards import shard_names, shard_number, shard_of
from delayq.redis.calls.call import Call, value_of
from delayq.redis.calls.inspect import server_time_ms
from delayq.redis.calls.shards import read_shard_count
from delayq.redis.connection.executor import Executor
from delayq.redis.keys import Keys

PATIENCE: Final = 5.0
"""How long a producer waits for the end of a change, in seconds."""

LOOK_EVERY: Final = 0.05
"""Seconds between two tries to store a job during a change."""


class ShardCounts:
    """The known numbers of shards. An unknown queue counts as a queue with one shard."""

    def __init__(self, executor: Executor, keys: Keys) -> None:
        self._executor = executor
        self._keys = keys
        self.several: dict[str, int] = {}
        """Number of shards of each queue that has several shards."""

    def known(self, queue: str) -> int:
        """Return the known number of shards of a queue, without a call to Redis."""
        return self.several.get(queue, 1)

    def of_job(self, queue: str, job_id: str) -> str:
        """Return the name of the shard of a job, by the known number."""
        count = self.several.get(queue)
        return queue if count is None else shard_of(queue, job_id, count)

    def number_of_job(self, queue: str, job_id: str) -> int | None:
        """Return the number of the shard of a job; None if the queue has only one shard."""
        count = self.several.get(queue)
        return None if count is None else shard_number(job_id, count)

    async def read(self, queue: str) -> list[str]:
        """Read the number of shards of a queue, and return the names of its shards, the first one first."""
        self.note(queue, await self._executor.run(read_shard_count(self._keys, queue)))
        return shard_names(queue, self.known(queue))

    async def read_with_time(self, queue: str) -> tuple[list[str], int]:
        """Do the same as `read`, and also return the time of the server with the first shard, in epoch ms."""
        trip: list[Call[int]] = [*self.calls([queue]), server_time_ms()]
        count, now_ms = [value_of(outcome) for outcome in await self._executor.run_all(trip)]
        self.note(queue, count)
        return shard_names(queue, count), now_ms

    async def read_all(self, queues: Sequence[str]) -> dict[str, list[str]]:
        """Read the numbers of shards of several queues in one round trip. Return the names of the shards by queue.

        If a number cannot be read, the known number is used.
        """
        self.keep(queues, await self._executor.run_all(self.calls(queues)))
        return {queue: shard_names(queue, self.known(queue)) for queue in queues}

    def calls(self, queues: Sequence[str]) -> list[Call[int]]:
        """Return the calls that read the numbers of shards of several queues."""
        return [read_shard_count(self._keys, queue) for queue in queues]

    def keep(self, queues: Sequence[str], outcomes: Sequence[int | BackendError]) -> None:
        """Remember the outcomes of `calls`."""
        for queue, outcome in zip(queues, outcomes, strict=True):
            if not isinstance(outcome, BackendError):
                self.note(queue, outcome)

    async def follow(self, queue: str, *, until: float) -> None:
        """Read the number of shards of a queue again, after a script answered ShardsChanged.

        If the number is the same, wait a moment, because a change may be in progress. Raises BackendUnavailable after
        `until`, a time of the monotonic clock.
        """
        if await self.have_changed(queue):
            return
        if time.monotonic() >= until:
            raise BackendUnavailable(
                f"The number of shards of the queue {queue!r} is being changed. Nothing was stored.",
                hint=f"Try again. If the change was interrupted, repeat it: `delayq queue set {queue} --shards N`.",
            )
        await self._executor.sleep(LOOK_EVERY)

    async def have_changed(self, queue: str) -> bool:
        """Read the number of shards of a queue again. Return True if the number has changed."""
        before = self.known(queue)
        await self.read(queue)
        return self.known(queue) != before

    def note(self, queue: str, count: int) -> None:
        """Remember the number of shards of a queue."""
        if count > 1:
            self.several[queue] = count
        else:
            self.several.pop(queue, None)
