"""The main driver: a queue's loops on Redis, each verb a script call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from delayq.core import failure as failures
from delayq.core.errors import BackendError
from delayq.core.failure import Failure
from delayq.core.options import Options
from delayq.drivers.base import Promotion, Tidied
from delayq.drivers.redis_consumer import RedisConsumer
from delayq.drivers.redis_steward import RedisSteward
from delayq.redis import presence
from delayq.redis.calls import deliver, inspect
from delayq.redis.calls.call import Call, Scope
from delayq.redis.calls.deliver import Held, Unsettled
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.keys import GROUP
from delayq.redis.scan import scan_ids
from delayq.redis.send import send
from delayq.redis.wakeups import PubSubWakeUps

T = TypeVar("T")

MAX_PAGES = 20
IDLE_LEASES = 3
MIN_IDLE_MS = 60_000
FULL_RETRY_S = 0.05
PAUSED_RETRY_S = 1.0


class RedisStreams:
    """A `Driver` on one Redis. `pages` caps how much of the delivered part one tick looks through."""

    def __init__(self, connector: Connector, options: Options) -> None:
        self.connector = connector
        self.options = options
        self._client = Client(connector, options)
        self._cursors: dict[str, _Cursor] = {}

    def queues(self) -> list[str]:
        """All queues known."""
        return self._client.queues()

    def register(self, queues: Sequence[str]) -> None:
        """Make queues known again: their names may have been lost with another key."""
        for queue in queues:
            self._client.verbs.forget_registered(queue)
            self._client.run(self._client.verbs.register(queue))

    def promote(self, queue: str) -> Promotion:
        """Move one batch of due jobs."""
        moved, lost, wait_us = self._send(deliver.promote(self._scope(queue)))
        special = {-1: None, -2: FULL_RETRY_S, -3: PAUSED_RETRY_S}
        return Promotion(moved, lost, special[wait_us] if wait_us < 0 else wait_us / 1_000_000)

    def reclaim(self, queue: str) -> Tidied:
        """Take back what vanished workers hold, all of it, batch by batch."""
        back = failed = 0
        while True:
            done = self._send(deliver.reclaim(self._scope(queue)))
            back, failed = back + done.back, failed + done.failed
            if not done.more:
                return Tidied(reclaimed=back, failed=failed, hold_ms=done.hold_ms)

    def tidy(self, queue: str) -> Tidied:
        """Look for damage and heal it, prune, and take dead consumers off the list."""
        scope = self._scope(queue)
        sums = self._send(deliver.tidy(scope))
        idle_ms = max(MIN_IDLE_MS, IDLE_LEASES * sums.lease_ms)
        silent = self._silent_consumers(scope, idle_ms)
        tidied = self._walk_delivered(queue, everything=not sums.agree)
        if not sums.agree and not self._send(deliver.tidy(scope)).agree:
            tidied = replace(tidied, mended=self._mend(scope))
        elif tidied == Tidied() and self._cursors[queue] == _Cursor():
            # Only after a whole pass that found nothing: an acknowledgement may still have to be closed, and it is
            # known for one only while its consumer is on the list.
            tidied = replace(tidied, retired=sum(self._send(deliver.retire(scope, name, idle_ms)) for name in silent))
        pruned = self._send(deliver.prune(scope, self.options.keep_failed_ms))
        return replace(tidied, pruned=pruned.completed + pruned.failed)

    def lease_s(self, queue: str) -> float:
        """The queue's lease in seconds, as its `meta` has it."""
        read = partial(presence.shortest_lease_ms, self.options.prefix, [queue], self.options.lease_ms)
        return self.connector.call(read, safe=True, reads=True) / 1000

    def wake_ups(self) -> PubSubWakeUps:
        """A listener of its own."""
        return PubSubWakeUps(self.connector, self.options.prefix)

    def consumer(self, name: str, queues: Sequence[str]) -> RedisConsumer:
        """A worker's way to the deliveries of these queues. Tidies them once, so that each can be blocked on."""
        for queue in queues:
            self._send(deliver.tidy(self._scope(queue)))
        self.register(queues)
        return RedisConsumer(self.connector, self.options, name, tuple(queues))

    def steward(self, queues: Sequence[str]) -> RedisSteward:
        """Looks after the deliveries of consumers that live in other processes."""
        return RedisSteward(self.connector, self.options, tuple(queues))

    def close(self) -> None:
        """Close the connections made here."""
        self.connector.close()

    def _scope(self, queue: str) -> Scope:
        return Scope(self.options, queue)

    def _send(self, call: Call[T]) -> T:
        answer: T = self.connector.call(partial(_send, call), safe=call.resend, reads=call.reads)
        return answer

    def _walk_delivered(self, queue: str, *, everything: bool) -> Tidied:
        """Go on where the last tick stopped; a page that found something is followed by the next at once."""
        scope, cursor, found = self._scope(queue), self._cursors.get(queue, _Cursor()), Tidied()
        if everything:
            cursor = _Cursor()
        try:
            for _ in range(MAX_PAGES):
                page = self._send(deliver.unsettled(scope, cursor.after, cursor.marks, everything=everything))
                found = self._settle_outside(scope, page.entries, found)
                cursor = _Cursor(page.after, page.marks) if page.after else _Cursor()
                if not page.after and not page.entries:
                    break
        except BackendError:
            self._cursors.pop(queue, None)  # what a failed page found must be seen again
            raise
        self._cursors[queue] = cursor
        return found

    def _settle_outside(self, scope: Scope, entries: Sequence[Unsettled], found: Tidied) -> Tidied:
        """Close, deliver again or bury what is delivered and no longer pending."""
        acked = [row for row in entries if row.verdict == "acked"]
        again = [Held(row.id, row.entry) for row in entries if row.verdict == "again"]
        garbage = [row.entry for row in entries if row.verdict == "garbage"]
        closed = sum(self._close(scope, acked))
        while again:
            done = self._send(deliver.hand_back(scope, again))
            found = replace(found, redelivered=found.redelivered + sum(done))
            again = again[len(done) :] if done else []
        if garbage:
            why = failures.encode(Failure(type="Garbage", message="This stream entry is no job of delayq."))
            buried = self._send(deliver.bury(scope, [(entry, why) for entry in garbage]))
            found = replace(found, buried=found.buried + sum(buried))
        return replace(found, closed=found.closed + closed)

    def _close(self, scope: Scope, acked: Sequence[Unsettled]) -> list[bool]:
        """Settle what a plain consumer acknowledged, with the retention its envelope asks for."""
        done = []
        for row in acked:
            info = self._send(inspect.get(scope, row.id))
            retention_ms = (info.envelope.retention_ms or 0) if info and info.envelope else 0
            done.append(deliver.Acked(Held(row.id, row.entry), retention_ms))
        return self._send(deliver.ack(scope, done)) if done else []

    def _mend(self, scope: Scope) -> int:
        """Walk every id there is and put each in its one place."""
        mended = 0
        ids = scan_ids(self.connector, scope.keys)
        while batch := list(islice(ids, deliver.PAGE)):
            while batch:
                words = self._send(deliver.mend(scope, batch))
                mended += sum(word != "fine" for word in words)
                batch = batch[len(words) :] if words else []
        return mended

    def _silent_consumers(self, scope: Scope, idle_ms: int) -> list[str]:
        """Consumers that hold nothing, have been silent for long, and belong to no worker that is here."""
        stream = scope.keys.stream
        names = self.connector.call(partial(presence.idle_consumers, stream, GROUP, idle_ms), safe=True, reads=True)
        if not names:
            return []
        here = self.connector.call(partial(presence.present, self.options.prefix, names), safe=True, reads=True)
        return [name for name in names if name not in here]


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Where the walk through the delivered part goes on, and the marks it began with."""

    after: str = "-"
    marks: str = ""


def _send(call: Call[Any], client: Any) -> Any:
    return send(client, call)
