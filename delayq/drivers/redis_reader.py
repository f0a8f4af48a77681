"""The reading side of a worker on Redis: one blocking connection, `XREADGROUP`, and which queues may be read.

The shards of a queue are read like queues; which there are is seen with the switches, and comes into force at once.

A queue is left out while it is paused, and for a while after it gave trouble (see `redis_shunned`). All are left out
while everything is paused and during maintenance; `heed` decides that. A reader that is told when to look at the
switches (`news`) does not look while it waits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from delayq.core.control import OBEY, Attention
from delayq.core.errors import AWAY, BackendError, DelayqError
from delayq.core.options import Options
from delayq.core.order import Order, strict
from delayq.drivers.base import Delivery
from delayq.drivers.redis_batch import Batch
from delayq.drivers.redis_read_shards import ReadShards
from delayq.drivers.redis_shunned import Shunned
from delayq.redis import presence
from delayq.redis.bounded import ReplyTooLarge
from delayq.redis.calls.call import Call, text
from delayq.redis.calls.operate import read_control
from delayq.redis.connect import Connector
from delayq.redis.direct import GroupRead, OneServer
from delayq.redis.faults import tell_place
from delayq.redis.keys import GROUP, Keys
from delayq.redis.posted import Posted
from delayq.redis.replies import raw_streams
from delayq.redis.send import send_all
from delayq.redis.translate import translate, translated

# The longest wait of a reader that has to look for something itself in between.
LOOK_MS = 1_000
PAUSE_CHECK_S = 0.5
# A reader that waits looks less often: what it gets in the end is held against the switches once more.
IDLE_CHECK_S = 1.5
REPLAY_PAGE = 100
# So much at once is a flow of short jobs.
MANY = 16
# After a reply that was too large.
LARGE_S = 10.0


class RedisReader:
    """Reads `queues` under the name `consumer`, in the order that `order` gives. Belongs to one thread.

    `welcome` is given each new shard before it is read. `flows`: the last read brought as much as was asked for, and
    that was a lot; never with a cluster.
    """

    def __init__(
        self,
        connector: Connector,
        options: Options,
        consumer: str,
        queues: Sequence[str],
        minds: Attention = OBEY,
        order: Order = strict,
        welcome: Callable[[str], object] = lambda shard: None,
    ) -> None:
        self.flows = False
        self._connector = connector
        self._most = options.max_envelope
        # Any, as redis-py types its streams too narrowly. The pace of a worker asks for 4 MB; this is some 32.
        self._client: Any = connector.reader(LOOK_MS, most_reply=2 * self._most)
        # So that a dead connection is found no later, and an answer may come as late as any other.
        self._longest_ms = max(LOOK_MS, LOOK_MS + connector.waits.reader_margin_ms - connector.waits.answer_ms)
        self._posts = isinstance(self._client, OneServer)
        self._prefix = options.prefix
        self._consumer = consumer
        self._shards = ReadShards(self._prefix, queues, order, welcome)
        self._heed = minds.heed
        self._allowed, self._lively = True, False
        self._behind: Sequence[Any] = ()
        self._calm: tuple[Sequence[str], Sequence[Any]] | None = None
        self._where = connector.endpoint.where
        self._paused: frozenset[str] = frozenset()
        self._pause_checked = float("-inf")
        self._news, self._told = minds.news, 0
        self.shunned = Shunned()
        self._large_until = 0.0
        self._posted: Posted | None = None

    @property
    def shards(self) -> tuple[str, ...]:
        """All that are read, as last seen."""
        return self._shards.all

    def exchange(self, calls: Sequence[Call[Any]], count: int, now_ms: int) -> tuple[list[Any], Batch]:
        """Send `calls` and read up to `count` deliveries without waiting, in one round trip.

        Queues after the first are only asked when those before them had too few. Answers the calls' replies, with an
        error in the place of a failed one, and what was read.
        """
        self._hear()
        batch = Batch(self._most)
        count = min(count, 1) if self._large_until > time.monotonic() else count
        queues = self._shards.in_order(self._open_queues(batch, now_ms))
        queues = queues if count else []  # asked for nothing, it looks all the same which shards there are
        replies = self._send(calls, *(self._words(queue, count) for queue in queues[:1]))
        if queues:
            self._take(batch, queues[0], self._known(replies.pop(), queues[0]))
        answers = [self._known(reply) for reply in replies]
        for queue in queues[1:]:
            if len(batch.deliveries) < count:
                self._read_on(batch, queue, count - len(batch.deliveries))
        self.flows = self._posts and len(batch.deliveries) == count >= MANY
        self._lively = self._lively or bool(batch.deliveries)
        return answers, batch

    def post(self, calls: Sequence[Call[Any]]) -> Posted:
        """Send `calls`; their answers are read when somebody asks, or before this connection is used again."""
        self._posted = Posted(self._client, calls, self._where)
        return self._posted

    def _hear(self) -> None:
        """Read what is still to be read: the connection is free again."""
        if self._posted is not None:
            self._posted.answers()
            self._posted = None

    def wait(self, block_ms: int, now_ms: int) -> Batch:
        """Block until any queue has something, at most `block_ms` (1 or more); shorter when there is more to do."""
        self._hear()
        batch = Batch(self._most)
        held = self._paused or not self._allowed
        idle_s = IDLE_CHECK_S if self._news is None else math.inf
        queues = self._shards.in_order(self._open_queues(batch, now_ms, PAUSE_CHECK_S if held else idle_s))
        block_ms = min(block_ms, self._longest_ms if self._may_wait_long(queues) else LOOK_MS)
        if not queues:
            time.sleep(block_ms / 1000)
            return batch
        streams = [Keys(self._prefix, queue).stream for queue in queues]
        behind = presence.switch_words(self._prefix, self.shards) if self._lively and self._posts else ()
        with translated(self._where, place=_named(queues)):
            heard = self._client.read_any(GroupRead(GROUP, self._consumer, streams, block_ms, behind))
        for asked, reply, seen in heard:
            self._take(batch, self._shards.streams[asked[0]], self._known(reply, self._shards.streams[asked[0]]))
            self._behind = seen
        self._lively = bool(batch.deliveries)
        return batch

    def _may_wait_long(self, queues: Sequence[str]) -> bool:
        """Not when one of the queues is left out, and not side by side with others for a node that may hang."""
        return self._news is not None and len(queues) == len(self.shards) and (self._posts or len(queues) == 1)

    def paused_since(self, deliveries: Sequence[Delivery], now_ms: Callable[[], int]) -> list[Delivery]:
        """Those of the deliveries whose queue was paused while the reader was blocked on it.

        While jobs come one by one, the switches were asked for behind the read: the server looked them up after it had
        delivered, and a lone job waits for no second round trip.
        """
        behind, self._behind = self._behind, ()
        if behind and (self._shards.all, behind) == self._calm and (self._news is None or self._news() == self._told):
            self._pause_checked = time.monotonic()
            return [delivery for delivery in deliveries if delivery.queue in self.shunned]
        batch = Batch(self._most)
        if behind:
            asked, seen = self._shards.all, presence.read_switches(behind)
            self._see(asked, seen, batch, now_ms())
            self._calm = (asked, behind) if self._allowed and seen.calm else None
        else:
            self._pause_checked = float("-inf")
        open_now = self._open_queues(batch, now_ms())
        return [delivery for delivery in deliveries if delivery.queue not in open_now]

    def replay(self) -> Batch:
        """What Redis holds for this consumer, page by page: all of it, or as much as may be in memory together."""
        self._hear()
        batch = Batch(self._most)
        for stream, queue in self._shards.streams.items():
            if (trouble := self.shunned.away(queue)) is not None:
                batch.errors.append(trouble)  # so that it is asked for again later
                continue
            try:
                with translated(self._where, reads=True, place=_named([queue])):
                    try:
                        self._pages(batch, stream, self._client, REPLAY_PAGE)
                    except ReplyTooLarge:
                        self._one_by_one(batch, stream)
                self.shunned.answered(queue)
            except DelayqError as error:
                if isinstance(error, AWAY) and not error.apart:
                    raise
                self._shun(batch, queue, error)
        return batch

    def _pages(self, batch: Batch, stream: str, client: Any, page: int) -> None:
        after = "0"
        while after and not batch.more:
            reply = client.xreadgroup(GROUP, self._consumer, {stream: after}, count=page)
            rows = reply[0][1] if reply else []
            after = text(rows[-1][0]) if len(rows) == page else ""
            self._sort(batch, reply)
            batch.more = bool(after) and batch.size > self._most

    def _one_by_one(self, batch: Batch, stream: str) -> None:
        """What is too large to be read together; the next reads ask for one at a time, for the server's sake too."""
        self._large_until = time.monotonic() + LARGE_S
        batch.forget(self._shards.streams[stream])
        with closing(self._connector.reader(LOOK_MS, most_value=self._most)) as alone:
            self._pages(batch, stream, alone, 1)

    def close(self) -> None:
        """Close the connection."""
        self._hear()
        self._client.close()

    def _open_queues(self, batch: Batch, now_ms: int, check_s: float = PAUSE_CHECK_S) -> list[str]:
        """The queues that may be read now, as they were named; what keeps one from being asked goes into the batch."""
        now, told = time.monotonic(), self._news() if self._news else 0
        if now - self._pause_checked >= check_s or told != self._told:
            near = [queue for queue in self.shards if self.shunned.away(queue) is None]
            with translated(self._where, reads=True):
                seen = presence.switches(self._prefix, near, self._client)
            self._told = told
            self._see(near, seen, batch, now_ms)
        if not self._allowed:
            return []
        return [queue for queue in self.shards if queue not in self._paused and queue not in self.shunned]

    def _see(self, shards: Sequence[str], seen: presence.Switches, batch: Batch, now_ms: int) -> None:
        """Go by these switches from now on; what keeps a queue from being asked goes into the batch."""
        self._pause_checked, paused = time.monotonic(), set(self._paused.difference(shards))
        self._calm = None
        for queue, reply in zip(shards, seen.marks, strict=True):
            mark = self._known(reply, queue)
            if isinstance(mark, DelayqError):
                self._shun(batch, queue, mark)
                continue
            if mark.paused_ms is not None and (mark.paused_ms == 0 or mark.paused_ms > now_ms):
                paused.add(queue)
            self._shards.spread(queue, mark.layout)
        self._paused = frozenset(paused)
        self._look_at(seen.control, batch, now_ms)

    def _look_at(self, reply: Any, batch: Batch, now_ms: int) -> None:
        """What holds for all workers; what was seen last holds on while it cannot be read."""
        known = self._known(reply)
        if isinstance(known, DelayqError):
            batch.errors.append(known)
        else:
            self._allowed = self._heed(replace(read_control(known, now_ms), paused_queues=self._paused))

    def _shun(self, batch: Batch, queue: str, error: DelayqError) -> None:
        batch.errors.append(error)
        self.shunned.met(queue, error)

    def _words(self, queue: str, count: int) -> tuple[Any, ...]:
        stream = Keys(self._prefix, queue).stream
        return ("XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", count, "STREAMS", stream, ">")

    def _read_on(self, batch: Batch, queue: str, count: int) -> None:
        """Read one more queue into a batch that may hold deliveries already: an error must not lose those."""
        try:
            [reply] = self._send((), self._words(queue, count))
        except DelayqError as error:
            batch.errors.append(error)
        else:
            self._take(batch, queue, self._known(reply, queue))

    def _send(self, calls: Sequence[Call[Any]], *words: tuple[Any, ...]) -> list[Any]:
        """As `send_all`; when all of it was for one node of a cluster that is away, the error in every place."""
        try:
            with translated(self._where):
                return send_all(self._client, calls, *words)
        except BackendError as error:
            if not error.apart:
                raise
            return [error] * (len(calls) + len(words))

    def _known(self, reply: Any, queue: str = "") -> Any:
        """A reply about `queue` as it is, or the error it stands for in delayq's words."""
        if not isinstance(reply, Exception) or isinstance(reply, DelayqError):
            return reply
        if queue:
            tell_place(reply, _named([queue]))
        return translate(reply, where=self._where)

    def _take(self, batch: Batch, queue: str, reply: Any) -> None:
        if isinstance(reply, DelayqError):
            self._shun(batch, queue, reply)
        else:
            self._sort(batch, reply)

    def _sort(self, batch: Batch, reply: Any) -> None:
        for key, rows in raw_streams(reply):
            batch.take(self._shards.streams[key.decode()], rows)


def _named(queues: Sequence[str]) -> str:
    """Queues as an error's sentence names them."""
    return f"the queue {queues[0]}" if len(queues) == 1 else f"one of the queues {', '.join(queues)}"
