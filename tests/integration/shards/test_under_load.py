"""1 shard becomes 4 and 4 become 2 while two producers fight for the same ids and workers run what falls due."""

from __future__ import annotations

import threading
from collections import Counter
from itertools import count

import pytest

from delayq.core.shards import shard_of
from delayq.core.states import Answer
from delayq.jobs.context import JobContext
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.support.station import QUEUE, Station
from tests.support.waiting import wait_until

MANY, BATCH = 150, 10
PATIENCE_S = 60.0


class Producer(threading.Thread):
    """Schedules one id after the other, batch by batch, until it is told to stop.

    Its client is its own, and hears of changes like everybody's.
    """

    def __init__(self, station: Station, first: str) -> None:
        super().__init__(name=first, daemon=True)
        self.created: Counter[str] = Counter()
        self.sum = 0
        self.enough = threading.Event()
        self.error: Exception | None = None
        self._station = station
        self._first = first

    def run(self) -> None:
        try:
            with Client(Connector(self._station.url), self._station.options) as client:
                for start in count(0, BATCH):
                    if self.enough.is_set():
                        return
                    self._schedule(client, range(start, start + BATCH))
        except Exception as error:  # noqa: BLE001 - raised again by the test
            self.error = error

    def _schedule(self, client: Client, numbers: range) -> None:
        specs = [{"name": "note", "id": f"job-{n}", "delay": f"{n % 7 * 20}ms"} for n in numbers]
        single = client.schedule("note", unique=f"key-{numbers[0]}", delay="50ms")
        for ref in (single, *client.schedule_many(specs)):
            self.created[ref.id] += ref.outcome is Answer.CREATED
            self.sum += ref.outcome is Answer.CREATED


@pytest.mark.station(lease_ms=30_000)
def test_nothing_is_lost_or_run_twice(station: Station) -> None:
    ran = station.tally()

    def note(context: JobContext) -> None:
        ran.add(context.id)

    station.handles("note", note)
    producers = [Producer(station, "one"), Producer(station, "two")]

    def created() -> int:
        return sum(producer.sum for producer in producers)

    with station.working(mover=True), station.working(mover=True, threads=2):
        for producer in producers:
            producer.start()
        for number in (4, 2, 0):
            enough = created() + MANY
            wait_until(lambda: created() >= enough, timeout=PATIENCE_S, what="more jobs were made")  # noqa: B023
            if number:
                station.client.queue_set(QUEUE, shards=number)
        for producer in producers:
            producer.enough.set()
        for producer in producers:
            producer.join(PATIENCE_S)
            assert producer.error is None
        expected = producers[0].created + producers[1].created
        wait_until(lambda: sum(ran.values()) >= sum(expected.values()), timeout=PATIENCE_S, what="all have run")
        shards = [station.keys(shard_of(QUEUE, number)) for number in range(4)]
        left = station.connector.commands()
        wait_until(lambda: not any(left.hlen(keys.of("jobs")) for keys in shards), timeout=PATIENCE_S, what="all ended")
    assert Counter(dict(ran)) == expected
    assert all(int(left.hget(keys.meta, "acked_total") or 0) > 0 for keys in shards), "every shard had its part"
    assert station.fences() == []
