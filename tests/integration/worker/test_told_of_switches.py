"""Switches, from whoever turns them to a child that waits for work: by a hint, and by a look when that is lost.

The supervisor's clock stands still where a test does not move it, so nothing is found by a look whose time has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis

from delayq.core.errors import BackendDamaged, BackendUnavailable
from delayq.drivers.base import Fetched
from delayq.drivers.redis_consumer import RedisConsumer
from delayq.drivers.redis_steward import RedisSteward
from delayq.redis.direct import GroupRead, Heard, Words
from delayq.redis.worker_hints import WorkerHints
from delayq.worker.holding import Holding
from delayq.worker.listeners import Listeners
from delayq.worker.renewing import LEASE_LOOK_S, Renewing
from delayq.worker.slots import Slots, Stop, Word
from delayq.worker.supply import Supply
from tests.support.fakes import Clock
from tests.support.station import QUEUE, Station
from tests.support.traffic import commands
from tests.support.waiting import wait_until

CONSUMER = "dq:host:1:a1"
META = f"delayq:{{{QUEUE}}}:meta"


class Child:
    """What a supervisor sees of it."""

    def __init__(self, slots: Slots) -> None:
        self.slots, self.name, self.number, self.done = slots, CONSUMER, 1, 0
        self.process = SimpleNamespace(pid=1)


class Parent:
    """A supervisor's turns, for one child that holds nothing."""

    def __init__(self, station: Station) -> None:
        self.clock = Clock()
        self.steward = station.driver.steward([QUEUE])
        self.slots = Slots((QUEUE,), 4)
        plan = SimpleNamespace(options=SimpleNamespace(), registry=SimpleNamespace(names=lambda: ()), lease_ms=None)
        self.renewing = Renewing(cast(Any, plan), self.steward, self.clock)
        self.renewing.prepare(self.slots)
        self.member = Child(self.slots)
        self.turn()  # from here on it listens
        self.turn()

    def turn(self) -> int:
        """One turn; what the child sees."""
        self.renewing.step([cast(Any, self.member)])
        return self.slots.ints[Word.SWITCHES]

    def until_told(self, do: Callable[[], object]) -> None:
        """Turn until the child is told of what this does."""
        before = self.turn()
        do()
        wait_until(lambda: self.turn() != before, what="the child is told")


@pytest.fixture
def parent(station: Station) -> Iterator[Parent]:
    with closing(station.driver.consumer(CONSUMER, [QUEUE])):
        yield Parent(station)


def test_a_child_is_told_by_hints(station: Station, parent: Parent) -> None:
    client = station.client
    for do in (
        lambda: client.pause(QUEUE),
        lambda: client.resume(QUEUE),
        client.pause_all,
        client.resume_all,
        client.start_maintenance,
        client.end_maintenance,
        client.restart_workers,
        lambda: client.queue_set(QUEUE, shards=2),
    ):
        parent.until_told(do)


def test_a_lease_that_was_changed_is_known_at_once(station: Station, parent: Parent) -> None:
    parent.until_told(lambda: station.client.queue_set(QUEUE, lease="7s"))
    assert parent.renewing.lease_s == parent.slots.floats[Word.LEASE] == 7.0


def test_what_was_written_by_hand_is_seen_by_the_next_look(
    station: Station, parent: Parent, redis_client: redis.Redis
) -> None:
    before = parent.turn()
    redis_client.hset(META, "paused_until_ms", 0)
    redis_client.hset("delayq:control", "restart_ms", 1)
    assert parent.turn() == before, "nobody said so"
    parent.clock.now += LEASE_LOOK_S
    assert parent.turn() == before + 1


def test_nothing_is_told_when_nothing_has_changed(station: Station, parent: Parent) -> None:
    before = parent.turn()
    parent.clock.now += LEASE_LOOK_S
    assert parent.turn() == before


def test_a_look_in_vain_counts_as_a_change_once_it_works(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child may wait over a connection that has died with that server, and nothing else would end its wait."""
    steward = station.driver.steward([QUEUE])
    steward.lease_s()
    before = steward.changes()

    def away(*args: object, **options: object) -> None:
        raise BackendUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(station.connector, "call", away)
        for _ in range(2):
            with pytest.raises(BackendUnavailable):
                steward.lease_s()
        assert steward.changes() == before
    steward.lease_s()
    steward.lease_s()
    assert steward.changes() == before + 1


def test_hints_about_other_queues_are_none(station: Station, redis_client: redis.Redis) -> None:
    hints = WorkerHints(station.connector, "delayq", RedisSteward._serves.__get__(station.driver.steward([QUEUE])))
    with closing(hints):
        hints.listen()
        assert hints.switched, "what was said before nobody heard"
        for said, counts in (("others", False), (QUEUE, True), (f"{QUEUE}#1", True), ("", True)):
            hints.switched = False
            redis_client.publish("delayq:switch", said)
            redis_client.publish("delayq:cancel", f"{QUEUE} the-end")
            wait_until(lambda: (QUEUE, "the-end") in hints.heard(), what="all is heard")
            assert hints.switched is counts, said


def test_a_told_reader_looks_before_its_next_wait_and_only_then(station: Station, redis_client: redis.Redis) -> None:
    news = [0]
    with closing(station.driver.consumer(CONSUMER, [QUEUE], news=lambda: news[0])) as consumer:
        consumer.wait(0.001)
        redis_client.hset(META, "paused_until_ms", 0)
        with commands(redis_client) as asked:
            consumer.wait(0.001)
        assert (asked["HMGET"], asked["XREADGROUP"]) == (0, 1)
        news[0] += 1
        with commands(redis_client) as asked:
            consumer.wait(0.001)
        assert (asked["HMGET"], asked["XREADGROUP"]) == (2, 0)


def test_a_told_reader_gives_back_what_came_after_a_pause_it_has_not_seen(
    station: Station, redis_client: redis.Redis
) -> None:
    with closing(station.driver.consumer(CONSUMER, [QUEUE], news=lambda: 0)) as consumer:
        consumer.wait(0.001)
        station.client.schedule("note", id="n1")
        redis_client.hset(META, "paused_until_ms", 0)
        assert list(consumer.wait(5.0).deliveries) == []
        assert list(consumer.replay().deliveries) == []


def test_while_jobs_come_one_by_one_the_switches_come_with_them(
    station: Station, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lone job waits for one round trip. A wait in vain ends that: who rests asks for nothing beside its wait."""
    with closing(station.driver.consumer(CONSUMER, [QUEUE], news=lambda: 0)) as consumer:
        assert isinstance(consumer, RedisConsumer)
        consumer.wait(0.001)
        client, trips = consumer._reader._client, list[list[str]]()
        exchange = client.exchange

        def noted(commands: Sequence[Words]) -> list[Any]:
            trips.append([str(words[0]) for words in commands])
            return cast(list[Any], exchange(commands))

        monkeypatch.setattr(client, "exchange", noted)
        for n in range(2):
            station.client.schedule("note", id=f"n{n}")
            assert [one.id for one in consumer.wait(5.0).deliveries] == [f"n{n}"]
        for _ in range(2):
            assert not consumer.wait(0.001).deliveries
        asked = ["HMGET", "HMGET"]
        assert trips == [["XREADGROUP"], asked, ["XREADGROUP", *asked], ["XREADGROUP", *asked], ["XREADGROUP"]]
        station.client.schedule("note", id="n2")
        assert consumer.wait(5.0).deliveries
        redis_client.flushdb()
        with pytest.raises(BackendDamaged):
            consumer.wait(5.0)


@pytest.mark.parametrize(
    ("key", "field"),
    [(META, "paused_until_ms"), ("delayq:control", "paused_until_ms"), ("delayq:control", "maintenance_until_ms")],
    ids=["a paused queue", "everything paused", "maintenance"],
)
def test_what_is_switched_on_after_jobs_that_came_in_peace_holds_the_next_one_up(
    station: Station, redis_client: redis.Redis, key: str, field: str
) -> None:
    """Replies like those before, which said that nothing was on, are not read again; others are."""
    with closing(station.driver.consumer(CONSUMER, [QUEUE], news=lambda: 0)) as consumer:
        for n in range(4):  # the first brings the switches behind it, the second is held against them
            station.client.schedule("note", id=f"n{n}")
            assert [one.id for one in consumer.wait(5.0).deliveries] == [f"n{n}"]
        station.client.schedule("note", id="held")
        redis_client.hset(key, field, 0)
        assert list(consumer.wait(5.0).deliveries) == []
        redis_client.hdel(key, field)
        found = wait_until(lambda: [one.id for one in consumer.wait(0.1).deliveries], what="it comes back")
        assert found == ["held"]


def test_a_hint_is_followed_behind_a_job_that_came_in_peace(
    station: Station, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may tell of what was switched on after the server had looked for this reader."""
    news = [0]
    with closing(station.driver.consumer(CONSUMER, [QUEUE], news=lambda: news[0])) as consumer:
        assert isinstance(consumer, RedisConsumer)
        for n in range(4):
            station.client.schedule("note", id=f"n{n}")
            assert consumer.wait(5.0).deliveries
        station.client.schedule("note", id="n4")
        client = consumer._reader._client
        read_any = client.read_any

        def told_meanwhile(read: GroupRead) -> list[Heard]:
            heard = cast(list[Heard], read_any(read))
            news[0] += 1
            return heard

        monkeypatch.setattr(client, "read_any", told_meanwhile)
        with commands(redis_client) as asked:
            assert consumer.wait(5.0).deliveries
        assert asked["HMGET"] == 4


class Waits:
    """A backend whose wait shows whether it would be ended."""

    limits = None

    def __init__(self, slots: Slots) -> None:
        self.seen: list[bool] = []
        self._slots = slots
        self.supply: Supply

    def fetch(self, settlements: object, count: int) -> Fetched:
        return Fetched()

    def wait(self, seconds: float) -> Fetched:
        for word in (None, Word.SWITCHES, Word.STOP):
            if word is not None:
                self._slots.ints[word] += 1
            self.seen.append(self.supply.disturbed)
        self._slots.ints[Word.STOP] = Stop.NO
        return Fetched()


def test_a_wait_is_ended_when_the_child_shall_look_about() -> None:
    slots = Slots((QUEUE,), 4)
    backend = Waits(slots)
    backend.supply = Supply(slots, Holding(slots, lambda: 0), cast(Any, backend), Listeners())
    for _ in range(2):
        backend.supply.read(1, 1.0)
    assert backend.seen == [False, True, True] * 2
    assert not backend.supply.disturbed, "nothing waits"
