"""The supervisor's way to Redis: it keeps, settles and takes back what its child processes hold.

Every call is short and may be repeated: the entry id in each claim tells Redis whether it still counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from delayq.core.control import WorkerOrder
from delayq.core.errors import DelayqError
from delayq.core.options import Options
from delayq.core.outcome import Outcome
from delayq.core.shards import PLAIN, queue_of
from delayq.drivers.base import Claim, Measures, Renewal
from delayq.drivers.redis_durable import DurableSettling
from delayq.redis import presence, settling
from delayq.redis.calls import activity, deliver, inspect
from delayq.redis.calls.call import Scope, text
from delayq.redis.calls.deliver import Held
from delayq.redis.connect import Connector
from delayq.redis.keys import GROUP, Keys
from delayq.redis.send import send_apart, through
from delayq.redis.translate import translate
from delayq.redis.worker_hints import WorkerHints

PENDING_PAGE = 100
LOOK_EVERY_S = 7.5
SWEEP_EVERY_S = 60.0
TIME_EVERY_S = 30.0
"""The server's clock is carried on by our own; only steps make it another."""
"""How old the list of shards may be; whoever asks for the lease every five seconds keeps it younger."""


class RedisSteward:
    """A `Steward` of consumers that serve `queues`."""

    def __init__(self, connector: Connector, options: Options, queues: tuple[str, ...]) -> None:
        self.queues = queues
        self._connector = connector
        self._options = options
        self._offset_ms: float | None = None
        self._time_seen_at = float("-inf")
        self._leases_ms: dict[str, int] = {}
        self._hints = WorkerHints(connector, options.prefix, self._serves)
        self._seen: object = None
        self._changes = 0
        self._swept: tuple[float, tuple[str, ...]] = (float("-inf"), ())
        self._layouts = dict.fromkeys(queues, PLAIN)
        self._listed: tuple[str, ...] = queues
        self._looked_at = float("-inf")
        self._worker = ""
        self._order = WorkerOrder.RESUME
        self._durable = DurableSettling(connector, options, queues)

    def renew(self, consumer: str, claims: Sequence[Claim]) -> Renewal:
        """Start the leases anew, all under way together; queues without claims are asked too, for lost replies.

        A part of a cluster that is away keeps the leases of the others from nothing.
        """
        held = _by_queue(claims)
        asks = [
            (queue, deliver.renew(self._scope(queue), consumer, some))
            for queue in dict.fromkeys((*self._shards(), *held))
            for some in _pages(held.get(queue, [])) or [[]]
        ]
        send = partial(send_apart, calls=[call for _, call in asks])
        lost: set[tuple[str, str]] = set()
        asked: set[tuple[str, str]] = set()
        errors: list[DelayqError] = []
        pending: dict[str, int] = {}
        for (queue, _), renewed in zip(asks, self._connector.call(send, safe=True), strict=True):
            if isinstance(renewed, Exception):
                errors.append(translate(renewed, where=self._connector.endpoint.where))
                continue
            lost |= {(queue, job_id) for job_id in renewed.lost}
            asked |= {(queue, job_id) for job_id in renewed.asked_to_stop}
            pending[queue] = renewed.pending
        surplus = any(number > len(held.get(queue, ())) for queue, number in pending.items())
        return Renewal(frozenset(lost), frozenset(asked), surplus, errors)

    def settle(self, ended: Sequence[tuple[Claim, Outcome]]) -> list[bool]:
        """Settle; envelopes, which say what follows, and earlier failures are read first."""
        endings = []
        for claim, outcome in ended:
            raw = self.envelope(claim)
            endings.append(settling.Ending(claim.queue, claim.id, claim.entry, raw, outcome, lost=not raw))
        records = {n: self._on_record(ending) for n, ending in enumerate(endings) if settling.wants_record(ending)}
        settled = [False] * len(endings)
        for call, queue, numbers in settling.calls(self._scope, endings, records, self.now_ms()):
            if wanted := self._durable.wanted(queue):
                ours = self._durable.settle(call, queue, wanted, again=True)
            else:
                ours = through(self._connector, call)
            for number, mine in zip(numbers, ours, strict=True):
                settled[number] = mine
        return settled

    def listen(self) -> None:
        """Begin to hear of jobs that somebody asks to stop, and of switches."""
        self._hints.listen()

    def heard(self) -> frozenset[tuple[str, str]]:
        """(queue, id) of jobs that somebody asked to stop since the last call."""
        return self._hints.heard()

    def changes(self) -> int:
        """Counts how often switches, shards or leases were seen otherwise than before; looks when a hint says so."""
        if self._hints.switched:
            self._look()
            self._hints.switched = False
        return self._changes

    def order(self, worker: str) -> WorkerOrder:
        """What an operator told this worker, as of the last look at switches."""
        if worker != self._worker:
            self._worker = worker
            self._look()
        return self._order

    def asked_to_stop(self, claim: Claim) -> bool:
        """Whether somebody asked this job to stop."""
        return self._on_record(claim).asked_to_stop

    def hand_back(self, claims: Sequence[Claim]) -> None:
        """Deliver again, uncounted."""
        for scope, rest in self._batches(claims):
            while rest:
                done = through(self._connector, deliver.hand_back(scope, rest))
                rest = rest[len(done) :] if done else []

    def recover(self, claims: Sequence[Claim]) -> int:
        """Deliver again, one recovery each; the job that has had too many fails."""
        failed = 0
        for scope, rest in self._batches(claims):
            while rest:
                done = through(self._connector, deliver.recover(scope, rest))
                failed += done.failed
                rest = rest[done.looked :] if done.looked else []
        return failed

    def envelope(self, claim: Claim) -> bytes:
        """The envelope of a job; b'' when it is gone."""
        info = through(self._connector, inspect.get(self._scope(claim.queue), claim.id))
        return info.raw if info else b""

    def pending(self, consumer: str) -> list[Claim]:
        """Everything Redis holds for a consumer, page by page. Rows whose entry is gone are left to the janitor."""
        return [
            Claim(queue, text(fields[b"id"]), text(entry))
            for queue in self._shards(now=True)
            for entry, fields in self._replay(queue, consumer)
            if b"id" in fields
        ]

    def retire(self, consumer: str) -> None:
        """Take a consumer that holds nothing off the groups and off the list of workers."""
        for queue in self._shards(now=True):
            through(self._connector, deliver.retire(self._scope(queue), consumer, 0))
        self._connector.call(partial(presence.leave, self._options.prefix, consumer), safe=True)

    def announce(self, consumer: str, about: Mapping[str, Any], ttl_s: float) -> None:
        """Say "it is here" for `ttl_s` seconds, and see the server's time."""
        document = msgspec.json.encode({"name": consumer, "queues": list(self.queues), **about})
        shards, (swept_at, swept) = self._shards(), self._swept
        sweeps = time.monotonic() - swept_at >= SWEEP_EVERY_S or swept != shards
        asks = time.monotonic() - self._time_seen_at >= TIME_EVERY_S
        obeys = "" if self._order is WorkerOrder.RESUME else self._worker
        here = presence.Here(consumer, shards, document, self.now_ms(), int(ttl_s * 1000), sweeps, asks, obeys)
        seen, refused = self._connector.call(partial(presence.announce, self._options.prefix, here), safe=True)
        if seen is not None:
            self._see_time(seen)
        if refused is not None:
            raise translate(refused, where=self._connector.endpoint.where)
        if sweeps:
            self._swept = (time.monotonic(), shards)

    def tally(self, measured: Mapping[str, Measures]) -> frozenset[str]:
        """Count what was measured, in the first shard of each queue, all in one round trip."""
        calls = [activity.tally(self._scope(queue), *measures) for queue, measures in measured.items()]
        answers = self._connector.call(partial(send_apart, calls=calls), safe=False)
        return frozenset(queue for queue, counted in zip(measured, answers, strict=True) if counted is not True)

    def leases_ms(self) -> Mapping[str, int]:
        """Return the lease that each queue keeps, the shortest of its shards, as last read."""
        found: dict[str, int] = {}
        for shard, lease_ms in self._leases_ms.items():
            queue = queue_of(shard)
            found[queue] = min(lease_ms, found.get(queue, lease_ms))
        return found

    def lease_s(self) -> float:
        """The shortest lease of the queues served; of one that cannot be asked just now, the last one known."""
        self._look()
        return min(self._leases_ms.values(), default=self._options.lease_ms) / 1000

    def now_ms(self) -> int:
        """The server's time; asked for when it was never seen."""
        if self._offset_ms is None:
            self._see_time(self._connector.call(presence.server_time, safe=True, reads=True))
        return int(time.monotonic() * 1000 + (self._offset_ms or 0.0))

    def _shards(self, *, now: bool = False) -> tuple[str, ...]:
        """All shards of the queues served, as seen with the leases; `now`: as they are."""
        if now or time.monotonic() - self._looked_at >= LOOK_EVERY_S:
            self._look()
        return self._listed

    def _look(self) -> None:
        """At leases and switches of all shards, and which these are; once more when there are others than were asked.

        A look in vain makes the next one find a change: whoever waited for this server meanwhile may still do so, over
        a connection that is dead.
        """
        before, self._seen = self._seen, None
        while True:
            asked = self._listed
            look = partial(presence.overlook, self._options.prefix, asked, self._options.lease_ms, self._worker)
            frames, control, order = self._connector.call(look, safe=True, reads=True)
            self._order = order or self._order
            seen = dict(zip(asked, frames, strict=True))
            leases_ms = {shard: frame.lease_ms or self._leases_ms.get(shard) for shard, frame in seen.items()}
            self._leases_ms = {shard: lease_ms for shard, lease_ms in leases_ms.items() if lease_ms is not None}
            self._layouts = {queue: seen[queue].layout or layout for queue, layout in self._layouts.items()}
            self._listed = tuple(shard for queue in self.queues for shard in self._layouts[queue].shards(queue))
            if asked == self._listed:
                break
        self._looked_at = time.monotonic()
        self._seen = (control, self._order, [(shard, seen[shard].words) for shard in asked])
        self._changes += self._seen != before

    def _serves(self, queue: str) -> bool:
        return not queue or queue_of(queue) in self.queues

    def _see_time(self, server: tuple[int, int]) -> None:
        seconds, micros = server
        self._time_seen_at = time.monotonic()
        self._offset_ms = seconds * 1000 + micros / 1000 - self._time_seen_at * 1000

    def _on_record(self, ending: settling.Ending | Claim) -> presence.Record:
        where = presence.Asked(ending.queue, ending.id) if isinstance(ending, Claim) else settling.asked(ending)
        read = partial(presence.records, self._options.prefix, [where])
        (record,) = self._connector.call(read, safe=True, reads=True)
        return record

    def _replay(self, queue: str, consumer: str) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
        after = "0"
        while True:
            rows = self._connector.call(_reading(Keys(self._options.prefix, queue).stream, consumer, after), safe=True)
            yield from rows
            if len(rows) < PENDING_PAGE:
                return
            after = text(rows[-1][0])

    def _batches(self, claims: Iterable[Claim]) -> Iterator[tuple[Scope, list[Held]]]:
        for queue, items in _by_queue(claims).items():
            for some in _pages(items):
                yield self._scope(queue), some

    def _scope(self, queue: str) -> Scope:
        return Scope(self._options, queue)


def _reading(stream: str, consumer: str, after: str) -> Callable[[Any], list[Any]]:
    """One page of a consumer's pending entries. Reading one's own changes nothing, so it may be sent again."""

    def read(client: Any) -> list[Any]:
        reply = client.xreadgroup(GROUP, consumer, {stream: after}, count=PENDING_PAGE)
        return list(reply[0][1]) if reply else []

    return read


def _by_queue(claims: Iterable[Claim]) -> dict[str, list[Held]]:
    found: dict[str, list[Held]] = {}
    for claim in claims:
        found.setdefault(claim.queue, []).append(Held(claim.id, claim.entry))
    return found


def _pages(items: Sequence[Held]) -> list[list[Held]]:
    return [list(items[start : start + deliver.PAGE]) for start in range(0, len(items), deliver.PAGE)]
