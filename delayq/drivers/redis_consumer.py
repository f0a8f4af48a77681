"""One worker's way to deliveries on Redis: reading (see `redis_reader`), settling, and staying known.

The stream entry id is the lease. Settling and reading travel in one round trip; while jobs flow, the server
settles what has ended while the next ones run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from delayq.core.control import OBEY, Attention
from delayq.core.errors import AWAY, BackendDamaged, DelayqError
from delayq.core.options import Options
from delayq.core.order import Order, strict
from delayq.core.progress import Told
from delayq.drivers.base import Delivery, Fetched, Renewal, Settlement
from delayq.drivers.redis_batch import Batch
from delayq.drivers.redis_burial import Burial, Garbage
from delayq.drivers.redis_durable import DurableSettling
from delayq.drivers.redis_endings import RedisEndings
from delayq.drivers.redis_limits import RedisLimits
from delayq.drivers.redis_reader import RedisReader
from delayq.redis import presence
from delayq.redis.calls import deliver, operate
from delayq.redis.calls.call import Scope
from delayq.redis.calls.deliver import Held
from delayq.redis.calls.operate import Telling, batches
from delayq.redis.connect import Connector
from delayq.redis.send import send, through
from delayq.redis.settling import SettleCall
from delayq.redis.translate import translate
from delayq.redis.verbs import Clock, server_clock

log = logging.getLogger("delayq.worker")


class RedisConsumer:
    """A `Consumer` under `name`. `clock` gives another time than the server's; only tests do."""

    replays = True

    def __init__(
        self,
        connector: Connector,
        options: Options,
        name: str,
        queues: Sequence[str],
        *,
        minds: Attention = OBEY,
        order: Order = strict,
        clock: Clock = server_clock,
    ) -> None:
        self.name = name
        self.queues = tuple(queues)
        self.limits = RedisLimits(connector, options, clock)
        self._connector = connector
        self._options = options
        self._clock = clock
        self._offset_ms = 0.0
        self._see_time(connector.call(presence.server_time, safe=True, reads=True))
        self._burial = Burial(connector, self._scope)
        self._durable = DurableSettling(connector, options, self.queues)
        self._reader = RedisReader(connector, options, name, queues, minds, order, self._join)
        self._endings = RedisEndings(connector, options.prefix, self._scope, self._reader.shunned, self.now_ms)

    def _join(self, shard: str) -> None:
        """Make a shard ready to be read, and be recorded there first; what is wrong with it its first read tells."""
        with suppress(BackendDamaged):
            through(self._connector, deliver.tidy(self._scope(shard)))
            through(self._connector, deliver.renew(self._scope(shard), self.name, []))

    # -- reading -----------------------------------------------------------------------------------------------------

    def fetch(self, settlements: Sequence[Settlement], count: int) -> Fetched:
        """Settle and read on in one round trip; while jobs flow, read on first, and settle while what came is run."""
        waiting, calls = list[SettleCall](), list[SettleCall]()
        for one in self._endings.calls(settlements):
            (waiting if self._durable.wanted(one.queue) else calls).append(one)
        if self._reader.flows and not waiting:
            return self._read_first(settlements, calls, count)
        ahead = [self._tried(one) for one in waiting]
        answers, batch = self._reader.exchange([call for call, _, _ in calls], count, self.now_ms())
        settled = self._settled(settlements, [*waiting, *calls], [*ahead, *answers], batch.errors)
        return self._fetched(batch, settled)

    def _read_first(self, settlements: Sequence[Settlement], calls: Sequence[SettleCall], count: int) -> Fetched:
        fetched = self._fetched(self._reader.exchange((), count, self.now_ms())[1])
        posted = self._reader.post([call for call, _, _ in calls])

        def later() -> Fetched:
            errors = list[DelayqError]()
            return Fetched(self._settled(settlements, calls, posted.answers(), errors), (), errors)

        return replace(fetched, later=later)

    def wait(self, seconds: float) -> Fetched:
        """Block until any queue has something, at most `seconds`, and at most one when nobody tells of switches.

        A pause does not reach a reader that is blocked already: what such a one still gets is handed back.
        """
        batch = self._reader.wait(max(1, int(seconds * 1000)), self.now_ms())
        if batch.deliveries:
            paused = self._reader.paused_since(batch.deliveries, self.now_ms)
            if paused:
                self.hand_back(paused)
                batch.deliveries = [delivery for delivery in batch.deliveries if delivery not in paused]
        return self._fetched(batch)

    def replay(self) -> Fetched:
        """All deliveries Redis holds for this consumer."""
        return self._fetched(self._reader.replay())

    def _fetched(self, batch: Batch, settled: Sequence[bool | None] = ()) -> Fetched:
        if batch.garbage:
            self._burial.bury(batch.garbage, Garbage.NO_JOB, batch.errors)
        return Fetched(settled, batch.deliveries, batch.errors, len(batch.garbage), batch.more)

    # -- settling ----------------------------------------------------------------------------------------------------

    def settle(self, settlements: Sequence[Settlement]) -> Fetched:
        """Settle without reading, over the shared connections."""
        calls, errors = self._endings.calls(settlements), list[DelayqError]()
        answers = [self._tried(one) for one in calls]
        settled = self._settled(settlements, calls, answers, errors)
        return Fetched(settled, (), errors)

    def hand_back(self, deliveries: Sequence[Delivery]) -> None:
        """Give back what was not started; every queue is tried before an error is raised."""
        self._each_queue(_by_queue(deliveries, lambda delivery: delivery.queue), self._hand_back_to)

    def _hand_back_to(self, queue: str, deliveries: Sequence[Delivery]) -> None:
        rest = [Held(delivery.id, delivery.entry) for delivery in deliveries]
        while rest:
            done = through(self._connector, deliver.hand_back(self._scope(queue), rest[: deliver.PAGE]))
            rest = rest[len(done) :]

    def _tried(self, one: SettleCall) -> Any:
        """The answer or the error. Not sent again after a lost reply: whoever does so must know, to tell a fence."""
        try:
            if wanted := self._durable.wanted(one.queue):
                return self._durable.settle(one.call, one.queue, wanted, again=False)
            return self._connector.call(lambda client: send(client, one.call), safe=False)
        except DelayqError as error:
            return error

    def _settled(
        self,
        settlements: Sequence[Settlement],
        calls: Sequence[SettleCall],
        answers: Sequence[Any],
        errors: list[DelayqError],
    ) -> list[bool | None]:
        """An answer for each settlement.

        What was fenced is cleared away, should it be no job's entry at all: then there is nothing to settle any more.
        One whose row was lost is its job's again, and settled with the next try.
        """
        settled: list[bool | None] = [None] * len(settlements)
        for (_, queue, numbers), answer in zip(calls, answers, strict=True):
            if isinstance(answer, DelayqError):
                errors.append(answer)
                self._reader.shunned.met(queue, answer)
                continue
            for n, ours in zip(numbers, answer, strict=True):
                settled[n] = ours
        if False not in settled:
            return settled
        fenced = [(n, settlements[n].delivery) for n, ours in enumerate(settled) if ours is False]
        said = self._burial.bury([(delivery.queue, delivery.entry) for _, delivery in fenced], Garbage.STRAY, errors)
        for n, delivery in fenced:
            settled[n] = {"adopted": None, "buried": True}.get(said.get(delivery.entry, ""), False)
        return settled

    # -- staying -----------------------------------------------------------------------------------------------------

    def renew(self, deliveries: Sequence[Delivery]) -> Renewal:
        """Start the leases anew, queue by queue; queues without deliveries are asked too, for lost replies."""
        lost: set[tuple[str, str]] = set()
        asked: set[tuple[str, str]] = set()
        surplus = []

        def renew_in(queue: str, items: Sequence[Delivery]) -> None:
            pending = 0
            for start in range(0, max(1, len(items)), deliver.PAGE):
                some = [Held(item.id, item.entry) for item in items[start : start + deliver.PAGE]]
                renewed = through(self._connector, deliver.renew(self._scope(queue), self.name, some))
                lost.update((queue, job_id) for job_id in renewed.lost)
                asked.update((queue, job_id) for job_id in renewed.asked_to_stop)
                pending = renewed.pending
            if pending > len(items):
                surplus.append(queue)

        held = _by_queue(deliveries, lambda delivery: delivery.queue)
        self._each_queue({queue: held.get(queue, []) for queue in (*self._reader.shards, *held)}, renew_in)
        return Renewal(frozenset(lost), frozenset(asked), bool(surplus))

    def lease_s(self) -> float:
        """The shortest lease of the queues served."""
        read = partial(presence.shortest_lease_ms, self._options.prefix, self._reader.shards, self._options.lease_ms)
        return self._connector.call(read, safe=True, reads=True) / 1000

    def announce(self, about: Mapping[str, Any], ttl_s: float) -> None:
        """Say "I am here" for `ttl_s` seconds."""
        document = msgspec.json.encode({"name": self.name, "queues": list(self.queues), **about})
        here = presence.Here(self.name, self._reader.shards, document, self._server_ms(), int(ttl_s * 1000))
        seen, refused = self._connector.call(partial(presence.announce, self._options.prefix, here), safe=True)
        if seen is not None:
            self._see_time(seen)
        if refused is not None:
            raise translate(refused, where=self._connector.endpoint.where) from refused

    def now_ms(self) -> int:
        """The server's time as last seen, carried on by the monotonic clock."""
        given = self._clock()
        return self._server_ms() if given is None else given

    def tell(self, told: Sequence[tuple[Delivery, Told]]) -> None:
        """Write what running jobs tell of themselves, queue by queue; of a job that was taken back nothing is."""

        def tell_in(queue: str, items: Sequence[tuple[Delivery, Told]]) -> None:
            lines = [Telling(Held(job.id, job.entry), said.encode()) for job, said in items]
            for some in batches(lines):
                through(self._connector, operate.progress(self._scope(queue), some))

        self._each_queue(_by_queue(told, lambda pair: pair[0].queue), tell_in)

    def close(self) -> None:
        """Leave the groups where nothing is held, take the name off the list, close the reader."""
        try:
            self._each_queue(dict.fromkeys(self._reader.shards, ()), self._retire_from)
            self._connector.call(partial(presence.leave, self._options.prefix, self.name), safe=True)
        finally:
            self._reader.close()

    def _retire_from(self, queue: str, _: Sequence[Delivery]) -> None:
        through(self._connector, deliver.retire(self._scope(queue), self.name, 0))

    def _server_ms(self) -> int:
        return int(time.monotonic() * 1000 + self._offset_ms)

    def _see_time(self, server: tuple[int, int]) -> None:
        seconds, micros = server
        self._offset_ms = seconds * 1000 + micros / 1000 - time.monotonic() * 1000

    def _scope(self, queue: str) -> Scope:
        return Scope(self._options, queue, self._clock())

    def _each_queue(self, groups: Mapping[str, Sequence[Any]], do: Callable[[str, Sequence[Any]], None]) -> None:
        """Do it for every queue; trouble with one keeps no other from it, and is raised at the end."""
        trouble: DelayqError | None = None
        for queue, items in groups.items():
            try:
                do(queue, items)
            except DelayqError as error:
                if isinstance(error, AWAY) and not error.apart:
                    raise
                trouble = trouble or error
        if trouble is not None:
            raise trouble


def _by_queue(items: Iterable[Any], queue_of: Callable[[Any], str]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for item in items:
        found.setdefault(queue_of(item), []).append(item)
    return found
