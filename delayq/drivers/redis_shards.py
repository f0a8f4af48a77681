"""What a janitor's tick does for the shards of a queue: it carries through a change that somebody began, and ends it.

A change is over when it is a week old and nothing lies by an earlier number of shards any more. To know that, every
job and every unique key of every shard is looked at; the look ends at the first one that lies otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from delayq.core import envelope as envelopes
from delayq.core.errors import BadEnvelope
from delayq.core.names import made_here
from delayq.core.shards import REST_MS, Layout, key_of, number_for, number_of, queue_of
from delayq.core.unique import word_of
from delayq.redis import resharding
from delayq.redis.calls.call import Scope, text
from delayq.redis.client import Client
from delayq.redis.scan import hash_rows

LOOK_EVERY_S: Final = 600.0


class RedisShards:
    """Looks after the layouts of queues. Remembers when it last looked, so one belongs to one janitor."""

    def __init__(
        self, client: Client, *, rest_ms: int = REST_MS, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._verbs = client.verbs
        self._rest_ms = rest_ms
        self._monotonic = monotonic
        self._look_at: dict[str, float] = {}

    def tend(self, shard: str) -> None:
        """One tick of one shard. A queue that was never sharded needs none."""
        queue = queue_of(shard)
        layout = self._client.run(self._verbs.layouts.read(queue))
        if shard != queue:
            self._carry_through(shard, layout)
        elif layout.epoch:
            known = self._client.run(resharding.spread(self._verbs, queue, layout))
            if known and layout.before:
                self._end(queue, layout)

    def _carry_through(self, shard: str, layout: Layout) -> None:
        """A shard that knows a newer layout than the first one: who began that change is gone, or the first lost it."""
        mine = self._client.run(resharding.layout_in(self._verbs, shard))
        if mine.epoch > layout.epoch:
            self._client.run(resharding.change(self._verbs, queue_of(shard), mine.count, mine.before))

    def _end(self, queue: str, layout: Layout) -> None:
        now_ms = self._client.run(self._verbs.server_ms())
        if now_ms - layout.epoch < self._rest_ms or self._monotonic() < self._look_at.get(queue, 0.0):
            return
        self._look_at[queue] = self._monotonic() + LOOK_EVERY_S
        shards = [self._verbs.shard(name, layout) for name in layout.shards(queue)]
        if not any(any(self._strays(scope, layout.count)) for scope in shards):
            self._client.run(resharding.end(self._verbs, queue, layout))

    def _strays(self, scope: Scope, count: int) -> Iterator[bool]:
        """Of everything in a shard whether it belongs elsewhere, page by page."""
        number = number_of(scope.queue)
        if number >= count:
            yield self._client.connector.call(partial(_owes, scope.keys.of("outbox")), safe=True, reads=True)
        for name, raw in hash_rows(self._client.connector, scope.keys.of("jobs")):
            yield any(number_for(key, count) != number for key in _keys(text(name), raw))
        for name, _ in hash_rows(self._client.connector, scope.keys.of("unique")):
            yield number_for(key_of("", text(name)), count) != number


def _owes(outbox: str, client: Any) -> bool:
    return int(client.xlen(outbox)) > 0


def _keys(job_id: str, raw: bytes) -> set[str]:
    """What may be asked for: a job's unique key; its id, if that is not one that only its maker knows."""
    try:
        lock = word_of(envelopes.decode(raw).unique)
    except BadEnvelope:
        lock = ""
    return {key_of(job_id, lock)} | (set() if lock and made_here(job_id) else {job_id})
