"""1 shard becomes 4 and 4 become 2 while two producers fight for the same ids and workers run what falls due."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from delayq.core.shards import shard_of
from delayq.core.states import Answer
from delayq.jobs.context import JobContext
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.support.station import QUEUE, Station
from tests.support.waiting import wait_until

JOBS, BATCH = 1_200, 10
PATIENCE_S = 60.0


class Producer(threading.Thread):
    """Schedules all ids, batch by batch, with a client of its own that hears of changes like everybody's."""

    def __init__(self, station: Station, first: str) -> None:
        super().__init__(name=first, daemon=True)
        self.created: Counter[str] = Counter()
        self.may_go_on = threading.Event()
        self.error: Exception | None = None
        self._station = station
        self._first = first

    def run(self) -> None:
        try:
            with Client(Connector(self._station.url), self._station.options) as client:
                for start in range(0, JOBS, BATCH):
                    if start == JOBS - BATCH:  # the last one is sent when all changes were made
                        self.may_go_on.wait(PATIENCE_S)
                    self._schedule(client, range(start, start + BATCH))
        except Exception as error:  # noqa: BLE001 - raised again by the test
            self.error = error

    def _schedule(self, client: Client, numbers: range) -> None:
        specs = [{"name": "note", "id": f"job-{n}", "delay": f"{n % 7 * 20}ms"} for n in numbers]
        for ref in client.schedule_many(specs):
            self.created[ref.id] += ref.outcome is Answer.CREATED
        single = client.schedule("note", unique=f"key-{numbers[0]}", delay="50ms")
        self.created[single.id] += single.outcome is Answer.CREATED


@pytest.mark.station(lease_ms=30_000)
def test_nothing_is_lost_or_run_twice(station: Station) -> None:
    ran = station.tally()

    def note(context: JobContext) -> None:
        ran.add(context.id)

    station.handles("note", note)
    producers = [Producer(station, "one"), Producer(station, "two")]

    def created() -> int:
        return sum(sum(producer.created.values()) for producer in producers)

    with station.working(mover=True), station.working(mover=True, threads=2):
        for producer in producers:
            producer.start()
        wait_until(lambda: created() >= JOBS // 6, timeout=PATIENCE_S, what="some jobs are there")
        station.client.queue_set(QUEUE, shards=4)
        before = created()
        wait_until(lambda: created() >= before + JOBS // 4, timeout=PATIENCE_S, what="jobs were made in 4 shards")
        station.client.queue_set(QUEUE, shards=2)
        for producer in producers:
            producer.may_go_on.set()
        for producer in producers:
            producer.join(PATIENCE_S)
            assert producer.error is None
        expected = producers[0].created + producers[1].created
        wait_until(lambda: sum(ran.values()) >= sum(expected.values()), timeout=PATIENCE_S, what="all have run")
        shards = [station.keys(shard_of(QUEUE, number)) for number in range(4)]
        left = station.connector.commands()
        wait_until(lambda: not any(left.hlen(keys.of("jobs")) for keys in shards), timeout=PATIENCE_S, what="all ended")
    assert Counter(dict(ran)) == expected
    assert {f"job-{n}" for n in range(JOBS)} <= set(ran)
    assert all(int(left.hget(keys.meta, "acked_total") or 0) > 0 for keys in shards), "every shard had its part"
    assert station.fences() == []
