"""The main driver: a queue's loops on Redis, each verb a script call."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from delayq.core.control import Attention, Heed, News, obey
from delayq.core.endpoint import Endpoint
from delayq.core.errors import AWAY, BackendDamaged, BackendFull
from delayq.core.options import Options
from delayq.core.order import Order, strict
from delayq.drivers.base import Promotion, Relayed, Tidied
from delayq.drivers.capabilities import Capabilities, Keeper
from delayq.drivers.redis_consumer import RedisConsumer
from delayq.drivers.redis_relay import RedisRelay
from delayq.drivers.redis_repair import RedisRepair
from delayq.drivers.redis_shards import RedisShards
from delayq.drivers.redis_steward import RedisSteward
from delayq.redis import presence, whole
from delayq.redis.calls import deliver
from delayq.redis.calls.call import Scope
from delayq.redis.client import Client
from delayq.redis.connect import Connector, Waits
from delayq.redis.send import through
from delayq.redis.unlisted import UnlistedWalk
from delayq.redis.verbs import Clock, server_clock
from delayq.redis.wakeups import PubSubWakeUps

log = logging.getLogger("delayq.redis")

CAPABILITIES: Final = Capabilities(
    delay=True,
    ids=True,
    replace=True,
    cancel=True,
    reschedule=True,
    run_now=True,
    unique=True,
    inspect=True,
    wait=True,
    counts=True,
    clear=True,
    chains=True,
    batches=True,
    links_wait=True,
    limits=True,
    pause=True,
    retention=True,
    progress=True,
    own_failed=True,
    mover=True,
    recoveries=True,
    keeper=Keeper.STEWARD,
    prefetch=256,
)
FULL_RETRY_S = 0.05
PAUSED_RETRY_S = 1.0


def _left_out(node: str, error: Exception) -> None:
    log.warning("the node %s is left out of this search for queues that are not on the list: %s", node, error)


class RedisStreams:
    """A `Driver` on one Redis. `clock` gives the scripts another time than the server's; only tests do."""

    def __init__(self, connector: Connector, options: Options, clock: Clock = server_clock) -> None:
        self.connector = connector
        self.options = options
        self._clock = clock
        self._client = Client(connector, options, clock)
        self._repair = RedisRepair(connector, options, clock)
        self._relay = RedisRelay(self._client)
        self._shards = RedisShards(self._client)
        self._leases_ms: dict[str, int] = {}
        self._walk: UnlistedWalk | None = None

    def queues(self) -> list[str]:
        """All queues known, a sharded one shard by shard."""
        return self._client.run(self._client.verbs.shards())

    def register(self, queues: Sequence[str]) -> None:
        """Make queues known again: their names may have been lost with another key."""
        for queue in queues:
            self._client.verbs.forget_registered(queue)
            self._client.run(self._client.verbs.register(queue))

    def relist(self) -> bool:
        """Put queues on the list again that hold jobs and are not there: a page of each node's keys in each call.

        Whether all keys were looked at. A user that may not call `SCAN` looks at none; `delayq doctor` says so.
        """
        walk, self._walk = self._walk or UnlistedWalk(self._client, _left_out), None
        if found := walk.step():
            log.warning("not on the list of queues, and now on it again: %s", ", ".join(found))
            self.register(found)
        self._walk = None if walk.over else walk
        return walk.over

    def promote(self, queue: str) -> Promotion:
        """Move one batch of due jobs."""
        moved, lost, wait_us, owed = through(self.connector, deliver.promote(self._scope(queue)))
        special = {-2: FULL_RETRY_S, -3: PAUSED_RETRY_S}  # -1, and any code of a later script: nothing is known to wait
        return Promotion(moved, lost, special.get(wait_us) if wait_us < 0 else wait_us / 1_000_000, owed)

    def relay(self, queue: str) -> Relayed:
        """Carry what follows jobs of this queue to other queues and to batches, until nothing is left that can be."""
        return self._relay.relay(queue)

    def reclaim(self, queue: str) -> Tidied:
        """Take back what vanished workers hold, all of it, batch by batch."""
        back = failed = 0
        while True:
            done = through(self.connector, deliver.reclaim(self._scope(queue)))
            back, failed, self._leases_ms[queue] = back + done.back, failed + done.failed, done.lease_ms
            if not done.more:
                return Tidied(reclaimed=back, failed=failed, hold_ms=done.hold_ms)

    def tidy(self, queue: str) -> Tidied:
        """Look for damage and heal it, prune, take dead consumers off the list; look after the queue's shards."""
        tidied = self._repair.tidy(queue)
        if queue in self._repair.new:
            self._client.run(whole.undo_if_removed(self._client.verbs, queue))
        if queue not in self._repair.whole:
            self._shards.tend(queue)
        return tidied

    def lease_s(self, queue: str) -> float:
        """The queue's lease in seconds, as its `meta` had it at the last `reclaim`; asked for when there was none."""
        if queue in self._leases_ms:
            return self._leases_ms[queue] / 1000
        read = partial(presence.shortest_lease_ms, self.options.prefix, [queue], self.options.lease_ms)
        return self.connector.call(read, safe=True, reads=True) / 1000

    def wake_ups(self) -> PubSubWakeUps:
        """A listener of its own."""
        return PubSubWakeUps(self.connector, self.options.prefix)

    def consumer(
        self, name: str, queues: Sequence[str], heed: Heed = obey, order: Order = strict, news: News | None = None
    ) -> RedisConsumer:
        """A worker's way to the deliveries of these queues. Tidies them once, so that each can be blocked on.

        The consumer is recorded before it reads: one deleted later by an operator is then known to have vanished. What
        is damaged, or on a node of a cluster that is away, keeps no worker from the other queues: its first read says
        what is wrong.
        """
        for queue in queues:
            with suppress(BackendDamaged), _part_away():
                through(self.connector, deliver.tidy(self._scope(queue)))
                through(self.connector, deliver.renew(self._scope(queue), name, []))
        # Said by the first announcement, and done again with each.
        with suppress(BackendDamaged, BackendFull), _part_away():
            self.register(queues)
        minds = Attention(heed, news)
        return RedisConsumer(self.connector, self.options, name, queues, minds=minds, order=order, clock=self._clock)

    def steward(self, queues: Sequence[str]) -> RedisSteward:
        """Looks after the deliveries of consumers that live in other processes."""
        return RedisSteward(self.connector, self.options, tuple(queues))

    def close(self) -> None:
        """Close the connections made here."""
        self.connector.close()

    def _scope(self, queue: str) -> Scope:
        return Scope(self.options, queue, self._clock())


@contextmanager
def _part_away() -> Iterator[None]:
    """Goes on when one node of a cluster could not be asked."""
    try:
        yield
    except AWAY as error:
        if not error.apart:
            raise


@dataclass(frozen=True, slots=True)
class RedisStreamsFactory:
    """Makes drivers, each with connections of its own: one for every process of a worker."""

    url: str | Endpoint
    options: Options
    clock: Clock = server_clock
    waits: Waits | None = None

    def __call__(self, *, answer_ms: int | None = None) -> RedisStreams:
        """`answer_ms`: wait no longer than that for a connection or an answer, and never ask again."""
        waits = (self.waits or Waits()) if answer_ms is None else Waits(answer_ms, answer_ms, answer_ms)
        return RedisStreams(Connector(self.url, waits=waits, hasty=True), self.options, self.clock)
