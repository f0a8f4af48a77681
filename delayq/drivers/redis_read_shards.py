"""Which shards a reader on Redis reads, as it last saw them, and in what order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from delayq.core.order import Order
from delayq.core.shards import PLAIN, Layout, in_turn, queue_of
from delayq.redis.keys import Keys


class ReadShards:
    """Those of `queues`: `all` of them, and which one a stream is. `welcome` is given each before its first read."""

    def __init__(self, prefix: str, queues: Sequence[str], order: Order, welcome: Callable[[str], object]) -> None:
        self.all = tuple(queues)
        self.streams = {Keys(prefix, queue).stream: queue for queue in queues}
        self._prefix = prefix
        self._queues = tuple(queues)
        self._order = order
        self._welcome = welcome
        self._layouts: dict[str, Layout] = dict.fromkeys(queues, PLAIN)
        self._turn = 0

    def spread(self, queue: str, layout: Layout) -> None:
        """The layout of a queue was seen. New shards are made ready before they are read."""
        if layout == self._layouts.get(queue, layout):
            return
        for shard in layout.shards(queue):
            if shard not in self.all:
                self._welcome(shard)
                self.streams[Keys(self._prefix, shard).stream] = shard
        self._layouts[queue] = layout
        self.all = tuple(shard for name in self._queues for shard in self._layouts[name].shards(name))

    def in_order(self, shards: Sequence[str]) -> Sequence[str]:
        """Queues in their order; among the shards of one each comes first in its turn."""
        if len(self.all) == len(self._queues):
            return self._order(shards)
        mine: dict[str, list[str]] = {}
        for shard in shards:
            mine.setdefault(queue_of(shard), []).append(shard)
        self._turn += 1
        return in_turn(mine, self._order([queue for queue in self._queues if queue in mine]), self._turn)
