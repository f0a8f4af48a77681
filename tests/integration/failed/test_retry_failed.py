"""Many failed jobs at once: by name, by the time they failed, all; at a rate; each keeps its id and its first error."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from delayq import Conflict, InvalidInput, Job, State
from delayq.core.failed import FailedOptions
from delayq.core.options import Options
from delayq.core.outcome import GiveUp
from delayq.core.when import format_instant
from delayq.drivers.base import Settlement
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis.aio import AsyncClient
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.testing import Travel
from delayq.testing.journey import VirtualClock

START_MS = 1_800_000_000_000
MINUTE_MS = 60_000


class Failing:
    """Jobs that failed a minute apart, the first at `START_MS`, and the clients that look at them then and later."""

    def __init__(self, connector: Connector, options: Options) -> None:
        self.clock = VirtualClock(START_MS)
        self.options = options
        self.connector = connector
        self.client = Client(connector, options, self.clock)
        self.driver = RedisStreams(connector, options, self.clock)

    def fail(self, *names: str, queue: str = "orders") -> None:
        """One job of each name, a minute apart; its id is its name and number."""
        for number, name in enumerate(names):
            self.client.schedule(name, id=f"{name}-{number}", queue=queue)
            self._fail_next(queue)
            self.clock.now_ms += MINUTE_MS

    def _fail_next(self, queue: str) -> None:
        consumer = self.driver.consumer("dq:test", (queue,))
        [delivery] = consumer.fetch((), 1).deliveries
        assert list(consumer.settle([Settlement(delivery, GiveUp(1, 1, ValueError("no stock")))]).settled) == [True]
        consumer.close()

    def states(self, *ids: str) -> list[State]:
        infos = [self.client.get(job_id) for job_id in ids]
        return [info.state if info else State.ABSENT for info in infos]


@pytest.fixture
def failing(connector: Connector, options: Options) -> Failing:
    return Failing(connector, options)


def meant(failing: Failing, **which: object) -> list[str]:
    return [info.id for info in failing.client.iter_failed(**FailedOptions(**which))]  # type: ignore[typeddict-item]


def test_by_name(failing: Failing) -> None:
    failing.fail("order.close", "bill.send", "order.open")
    assert meant(failing) == ["order.close-0", "bill.send-1", "order.open-2"]
    assert meant(failing, name="order.*") == ["order.close-0", "order.open-2"]
    retried = list(failing.client.retry_failed(name="order.*"))
    assert [(one.id, one.ref.id if one.ref else "", one.error) for one in retried] == [
        ("order.close-0", "order.close-0", None),
        ("order.open-2", "order.open-2", None),
    ]
    assert failing.states("order.close-0", "bill.send-1", "order.open-2") == ["scheduled", "failed", "scheduled"]


def test_by_the_time_they_failed(failing: Failing) -> None:
    failing.fail("a", "a", "a", "a", "a")
    second, third = (datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(minutes=n) for n in (1, 2))
    assert meant(failing, since=second, until=third) == ["a-1", "a-2"]
    assert meant(failing, since=format_instant(START_MS + MINUTE_MS + 1)) == ["a-2", "a-3", "a-4"]
    assert meant(failing, since="2m") == ["a-3", "a-4"]
    assert meant(failing, until=timedelta(minutes=4)) == ["a-0", "a-1"]
    assert meant(failing, since="10m", until="6m") == []
    retried = list(failing.client.retry_failed(since="3m", until="2m"))
    assert [one.id for one in retried] == ["a-2", "a-3"]


def test_a_range_that_is_none_is_refused(failing: Failing) -> None:
    with pytest.raises(InvalidInput, match="before the beginning"):
        meant(failing, since="1m", until="2m")
    with pytest.raises(InvalidInput):
        meant(failing, since="yesterday")


def test_of_one_queue_only(failing: Failing) -> None:
    failing.fail("a")
    failing.fail("b", queue="bills")
    assert [one.id for one in failing.client.retry_failed("bills")] == ["b-0"]
    assert failing.states("a-0") == ["failed"]


def test_many_pages(failing: Failing, connector: Connector) -> None:
    """More than one page, several of one millisecond: none is missed, none is met twice."""
    commands = connector.commands()
    for n in range(1_100):
        job_id = f"j{n:04}"
        raw = f'{{"v":1,"id":"{job_id}","name":"n{n % 2}","queue":"orders","data":null,"attempts":1,"created_ms":1}}'
        commands.hset("delayq:{orders}:jobs", job_id, raw)
        commands.zadd("delayq:{orders}:failed", {job_id: START_MS + n // 100})
    assert meant(failing) == [f"j{n:04}" for n in range(1_100)]
    assert len(meant(failing, name="n1")) == 550
    since = datetime.fromtimestamp((START_MS + 5) / 1000, UTC)
    assert meant(failing, since=since)[0] == "j0500"
    assert len(list(failing.client.retry_failed())) == 1_100
    assert meant(failing) == []
    commands.delete("delayq:{orders}:jobs", "delayq:{orders}:scheduled")


def test_one_that_fails_again_meanwhile_is_not_met_twice(failing: Failing) -> None:
    failing.fail("a", "a")
    met = []
    for one in failing.client.retry_failed():
        met.append(one.id)
        failing.driver.promote("orders")
        failing._fail_next("orders")
        assert len(met) < 5
    assert met == ["a-0", "a-1"]
    assert failing.states("a-0", "a-1") == ["failed", "failed"]


def test_one_that_cannot_be_retried_keeps_no_other_from_it(failing: Failing) -> None:
    failing.client.schedule("a", id="a-0", unique="k")
    failing._fail_next("orders")
    failing.client.schedule("b", id="owner", unique="k", delay="1h")
    failing.clock.now_ms += MINUTE_MS
    failing.fail("c")
    first, second = failing.client.retry_failed()
    assert (first.id, first.ref, type(first.error)) == ("a-0", None, Conflict)
    assert (second.id, second.error) == ("c-0", None)
    assert failing.states("a-0", "c-0") == ["failed", "scheduled"]


def test_at_a_rate(failing: Failing) -> None:
    failing.fail(*("a" for _ in range(6)))
    began = time.monotonic()
    assert len(list(failing.client.retry_failed(rate="20/s"))) == 6
    assert time.monotonic() - began >= 5 * 0.05
    with pytest.raises(InvalidInput, match="is no rate"):
        next(failing.client.retry_failed(rate="fast"))


async def test_awaited(failing: Failing) -> None:
    failing.fail("a", "b", "a")
    async with AsyncClient(Connector(failing.connector.endpoint), failing.options, failing.clock) as client:
        assert [info.id async for info in client.iter_failed(name="a")] == ["a-0", "a-2"]
        retried = [one async for one in client.retry_failed(name="a", rate="100/s")]
        assert [(one.id, one.error) for one in retried] == [("a-0", None), ("a-2", None)]
        assert [info.id async for info in client.iter_failed()] == ["b-1"]


def test_the_first_error_and_the_id_are_kept(delayq_travel: Travel) -> None:
    """Over a life of many attempts, a retry, and a second life."""

    class Shaky(Job, name="shaky", tries=14, backoff="1m", queue="orders"):
        def handle(self) -> None:
            count = len(delayq_travel.attempts)
            raise KeyError("sku") if count == 0 else ValueError(f"again {count}")

    ref = Shaky().dispatch(id="shaky-1")
    delayq_travel("1h")
    for life in (1, 2):
        info = delayq_travel.client.get("shaky-1", queue="orders")
        assert info is not None
        assert info.failure is not None
        assert (info.id, info.state, info.attempts) == (ref.id, State.FAILED, 14)
        assert info.failure.message == f"again {14 * life - 1}"
        assert (info.failure.first.type, info.failure.first.attempt) == ("KeyError", 1)
        assert "KeyError" in info.failure.first.traceback
        [retried] = delayq_travel.client.retry_failed("orders")
        assert (retried.id, retried.error) == ("shaky-1", None)
        delayq_travel("1h")
