"""One worker's way to deliveries on Redis: a blocking reader of its own, and calls for the rest.

The stream entry id is the lease. Reading is `XREADGROUP`; settling batch k and reading batch k+1
travel in one round trip.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from delayq.core import failure as failures
from delayq.core.failure import Failure
from delayq.core.options import Options
from delayq.drivers.base import Delivery, Fetched, Renewal, Settlement
from delayq.redis import presence, settling
from delayq.redis.calls import deliver
from delayq.redis.calls.call import Call, Scope, text
from delayq.redis.calls.deliver import Held
from delayq.redis.connect import Connector
from delayq.redis.keys import GROUP, Keys
from delayq.redis.send import send, send_all
from delayq.redis.translate import translated

T = TypeVar("T")

BLOCK_MS = 1_000
PAUSE_CHECK_S = 0.5
GARBAGE = failures.encode(Failure(type="Garbage", message="This stream entry has no id or no job: it is none of ours."))


class RedisConsumer:
    """A `Consumer` under `name`. `fetch`, `wait` and `replay` belong to one thread."""

    def __init__(self, connector: Connector, options: Options, name: str, queues: tuple[str, ...]) -> None:
        self.name = name
        self.queues = queues
        self._connector = connector
        self._options = options
        self._reader: Any = connector.reader(BLOCK_MS)  # redis-py types its streams too narrowly
        self._streams = {Keys(options.prefix, queue).stream: queue for queue in queues}
        self._where = connector.endpoint.where
        self._paused: frozenset[str] = frozenset()
        self._pause_checked = float("-inf")
        self._offset_ms = 0.0
        self._see_time(connector.call(presence.server_time, safe=True, reads=True))

    # -- reading -----------------------------------------------------------------------------------------------------

    def fetch(self, settlements: Sequence[Settlement], count: int) -> Fetched:
        """Settle and read on in one round trip; queues after the first are only asked when those before are empty."""
        calls = self._settle_calls(settlements)
        open_queues = self._open_queues() if count else []
        reads = [self._read_words(open_queues[:1], count)] if open_queues else []
        with translated(self._where):
            replies = send_all(self._reader, [call for call, _ in calls], *reads)
            settled = _merge(calls, replies, len(settlements))
            fresh = _good(replies[-1]) if reads else []
        deliveries = self._deliveries(fresh)
        for queue in open_queues[1:]:
            if len(deliveries) < count:
                deliveries += self._read([queue], count - len(deliveries))
        return Fetched(settled, deliveries)

    def wait(self, seconds: float) -> list[Delivery]:
        """Block until any queue has something, at most `seconds` (and at most one second)."""
        block_ms = max(1, min(BLOCK_MS, int(seconds * 1000)))
        open_queues = self._open_queues()
        if not open_queues:
            time.sleep(block_ms / 1000)
            return []
        return self._read(open_queues, 1, block_ms)

    def replay(self) -> list[Delivery]:
        """All deliveries Redis holds for this consumer, page by page."""
        found: list[Delivery] = []
        for key in self._streams:
            after = "0"
            while True:
                with translated(self._where, reads=True):
                    reply = self._reader.xreadgroup(GROUP, self.name, {key: after}, count=100)
                rows = reply[0][1] if reply else []
                if not rows:
                    break
                found += self._deliveries([[key.encode(), rows]])
                after = text(rows[-1][0])
        return found

    def _read(self, queues: Sequence[str], count: int, block_ms: int | None = None) -> list[Delivery]:
        streams = {Keys(self._options.prefix, queue).stream: ">" for queue in queues}
        with translated(self._where):
            return self._deliveries(self._reader.xreadgroup(GROUP, self.name, streams, count=count, block=block_ms))

    def _read_words(self, queues: Sequence[str], count: int) -> tuple[Any, ...]:
        keys = [Keys(self._options.prefix, queue).stream for queue in queues]
        return ("XREADGROUP", "GROUP", GROUP, self.name, "COUNT", count, "STREAMS", *keys, *([">"] * len(keys)))

    def _deliveries(self, reply: Iterable[Any]) -> list[Delivery]:
        found: list[Delivery] = []
        for key, rows in reply:
            queue = self._streams[key.decode()]
            garbage = []
            for entry, fields in rows:
                job_id, raw = fields.get(b"id"), fields.get(b"job")
                if job_id is not None and raw is not None:
                    due, times = fields.get(b"due", b""), fields.get(b"recoveries", b"")
                    due_ms = int(due) if due.isdigit() else 0
                    recoveries = int(times) if times.isdigit() else 0
                    found.append(Delivery(queue, text(job_id), entry.decode(), raw, due_ms, recoveries))
                elif fields:
                    garbage.append((text(entry), GARBAGE))
            while garbage:
                garbage = garbage[len(self._send(deliver.bury(self._scope(queue), garbage))) :]
        return found

    def _open_queues(self) -> list[str]:
        now = time.monotonic()
        if now - self._pause_checked >= PAUSE_CHECK_S:
            read = partial(presence.paused, self._options.prefix, self.queues, self.now_ms())
            with translated(self._where, reads=True):
                self._paused = read(self._reader)
            self._pause_checked = now
        return [queue for queue in self.queues if queue not in self._paused]

    # -- settling ----------------------------------------------------------------------------------------------------

    def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Settle without reading, over the shared connections."""
        calls = self._settle_calls(settlements)
        replies = [self._send(call) for call, _ in calls]
        return _merge(calls, replies, len(settlements))

    def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Give back what was not started."""
        for queue, items in _by_queue(deliveries).items():
            rest = [Held(item.id, item.entry) for item in items]
            while rest:
                done = self._send(deliver.hand_back(self._scope(queue), rest[: deliver.PAGE]))
                rest = rest[len(done) :] if done else []

    def _settle_calls(self, settlements: Sequence[Settlement]) -> list[settling.SettleCall]:
        endings = [
            settling.Ending(given.queue, Held(given.id, given.entry), given.raw, outcome)
            for given, outcome in settlements
        ]
        previous = self._failures({n: ending for n, ending in enumerate(endings) if settling.with_history(ending)})
        return settling.calls(self._scope, endings, previous, self.now_ms())

    def _failures(self, endings: Mapping[int, settling.Ending]) -> dict[int, Failure | None]:
        """What is on record for these jobs, read in one round trip; only jobs that failed now are asked for."""
        if not endings:
            return {}
        keys = [(Keys(self._options.prefix, ending.queue).of("errors"), ending.held.id) for ending in endings.values()]
        records = self._connector.call(partial(presence.failures_on_record, keys), safe=True, reads=True)
        return dict(zip(endings, map(failures.decode, records), strict=True))

    # -- staying -----------------------------------------------------------------------------------------------------

    def renew(self, deliveries: Sequence[Delivery]) -> Renewal:
        """Start the leases anew, queue by queue; queues without deliveries are asked too, for lost replies."""
        lost: set[tuple[str, str]] = set()
        asked: set[tuple[str, str]] = set()
        surplus = False
        held = _by_queue(deliveries)
        for queue in self.queues:
            items = held.get(queue, [])
            pending = 0
            for start in range(0, max(1, len(items)), deliver.PAGE):
                some = [Held(item.id, item.entry) for item in items[start : start + deliver.PAGE]]
                renewed = self._send(deliver.renew(self._scope(queue), self.name, some))
                lost |= {(queue, job_id) for job_id in renewed.lost}
                asked |= {(queue, job_id) for job_id in renewed.asked_to_stop}
                pending = renewed.pending
            surplus = surplus or pending > len(items)
        return Renewal(frozenset(lost), frozenset(asked), surplus)

    def lease_s(self) -> float:
        """The shortest lease of the queues served."""
        read = partial(presence.shortest_lease_ms, self._options.prefix, self.queues, self._options.lease_ms)
        return self._connector.call(read, safe=True, reads=True) / 1000

    def announce(self, about: Mapping[str, Any], ttl_s: float) -> None:
        """Say "I am here" for `ttl_s` seconds."""
        document = msgspec.json.encode({"name": self.name, "queues": list(self.queues), **about})
        here = presence.Here(self.name, self.queues, document, self.now_ms(), int(ttl_s * 1000))
        self._see_time(self._connector.call(partial(presence.announce, self._options.prefix, here), safe=True))

    def now_ms(self) -> int:
        """The server's time as last seen, carried on by the monotonic clock."""
        return int(time.monotonic() * 1000 + self._offset_ms)

    def close(self) -> None:
        """Leave the groups when nothing is held, take the name off the list, close the reader."""
        for queue in self.queues:
            self._send(deliver.retire(self._scope(queue), self.name, 0))
        self._connector.call(partial(presence.leave, self._options.prefix, self.name), safe=True)
        self._reader.close()

    def _see_time(self, server: tuple[int, int]) -> None:
        seconds, micros = server
        self._offset_ms = seconds * 1000 + micros / 1000 - time.monotonic() * 1000

    def _scope(self, queue: str) -> Scope:
        return Scope(self._options, queue)

    def _send(self, call: Call[T]) -> T:
        answer: T = self._connector.call(partial(_send, call), safe=call.resend, reads=call.reads)
        return answer


def _send(call: Call[Any], client: Any) -> Any:
    return send(client, call)


def _by_queue(deliveries: Iterable[Delivery]) -> dict[str, list[Delivery]]:
    found: dict[str, list[Delivery]] = {}
    for delivery in deliveries:
        found.setdefault(delivery.queue, []).append(delivery)
    return found


def _good(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply


def _merge(calls: Sequence[settling.SettleCall], replies: Sequence[Any], total: int) -> list[bool]:
    settled = [False] * total
    for (_, numbers), reply in zip(calls, replies, strict=False):
        for n, ours in zip(numbers, _good(reply), strict=True):
            settled[n] = ours
    return settled
