"""consumers/plain_stream, as a process, against real servers: redis-py alone is enough to take part."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from delayq.core.options import Options
from delayq.core.states import State
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from tests.consumers.following import all_followed, linked_jobs
from tests.consumers.programs import ROOT, Program, running
from tests.support.waiting import wait_until

SCRIPT = "consumers/plain_stream/consumer.py"
LEASE_MS = 600

Start = Callable[..., AbstractContextManager[Program]]


@pytest.fixture
def connector(each_redis_url: str) -> Iterator[Connector]:
    with closing(Connector(each_redis_url)) as connector:
        yield connector


@pytest.fixture
def client(connector: Connector) -> Client:
    return Client(connector, Options(queue="orders", lease_ms=LEASE_MS))


@pytest.fixture
def driver(connector: Connector) -> RedisStreams:
    """The loops' side, so that a test says when the janitor looks."""
    return RedisStreams(connector, Options(queue="orders", lease_ms=LEASE_MS))


@pytest.fixture
def start(each_redis_url: str, tmp_path: Path) -> Start:
    def begin(settle: str, name: str = "plain-1") -> AbstractContextManager[Program]:
        words = [SCRIPT, "--url", each_redis_url, "--queue", "orders", "--name", name, "--settle", settle]
        return running(words, tmp_path)

    return begin


def state_of(client: Client, job_id: str) -> State | None:
    job = client.get(job_id)
    return job.state if job else None


def holder_of(client: Client, job_id: str) -> str:
    """The consumer that has it pending; '' for none."""
    job = client.get(job_id)
    return job.consumer if job else ""


def test_it_imports_nothing_of_delayq() -> None:
    tree = ast.parse((ROOT / SCRIPT).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in names if name.partition(".")[0] == "delayq"]


def test_ack_lua_closes_a_job_at_once(client: Client, start: Start) -> None:
    client.schedule("order.close", {"order_id": 1}, id="o-1")
    client.schedule("order.close", {"order_id": 2}, id="o-2", retention="1h")
    with start("ack") as consumer:
        consumer.wait_for_ids("o-1", "o-2")
        wait_until(lambda: state_of(client, "o-1") is None, what="o-1 is forgotten")
        wait_until(lambda: state_of(client, "o-2") is State.COMPLETED, what="o-2 is kept as completed")
        assert consumer.lines[0] == {"id": "o-1", "name": "order.close", "data": {"order_id": 1}}


def test_xack_alone_is_closed_by_the_janitor(client: Client, driver: RedisStreams, start: Start) -> None:
    client.schedule("order.close", id="o-1")
    client.schedule("order.close", id="o-2", retention="1h")
    with start("xack") as consumer:
        consumer.wait_for_ids("o-1", "o-2")
        wait_until(lambda: not holder_of(client, "o-1") and not holder_of(client, "o-2"), what="both are acknowledged")
        assert driver.tidy("orders").closed == 2
    assert state_of(client, "o-1") is None
    assert state_of(client, "o-2") is State.COMPLETED


@pytest.mark.parametrize("settle", ["xack", "ack"])
def test_a_chain_goes_on_and_a_batch_ends(client: Client, driver: RedisStreams, start: Start, settle: str) -> None:
    batch_id = linked_jobs(client)
    with start(settle) as consumer:
        wait_until(lambda: all_followed(client, driver, batch_id, consumer), what="all that follows is handled")
        assert sorted(consumer.ids()) == ["first", "m-1", "m-2", "second", "then"], consumer.complaints


@pytest.mark.timed
@pytest.mark.parametrize("settle", ["xack", "ack"])
def test_long_work_keeps_its_lease(client: Client, driver: RedisStreams, start: Start, settle: str) -> None:
    client.schedule("order.close", {"seconds": 4 * LEASE_MS / 1000}, id="o-1")
    judged = 0
    with start(settle) as consumer:
        consumer.wait_for_ids("o-1")
        while (job := client.get("o-1")) and job.consumer:
            tick = driver.reclaim("orders")
            judged += tick.hold_ms == 0
            assert tick.reclaimed == 0
            time.sleep(LEASE_MS / 10_000)  # the janitor's tick; not a wait for anything
        assert judged > 5, "the janitor never dared to take anything back, so this test proved nothing"
        driver.tidy("orders")
        assert state_of(client, "o-1") is None
        assert consumer.ids() == ["o-1"]


def test_what_a_dead_consumer_held_is_taken_back(client: Client, driver: RedisStreams, start: Start) -> None:
    client.schedule("order.close", {"seconds": 60}, id="o-1")
    with start("xack") as consumer:
        consumer.wait_for_ids("o-1")
        consumer.kill()
    wait_until(lambda: driver.reclaim("orders").reclaimed, what="the janitor takes it back")
    job = client.get("o-1")
    assert job is not None
    assert (job.state, job.recoveries) == (State.READY, 1)


@pytest.mark.timed  # it is killed within the second that its job takes
@pytest.mark.parametrize("settle", ["xack", "ack"])
def test_after_a_restart_it_goes_on_with_what_it_held(client: Client, start: Start, settle: str) -> None:
    client.schedule("order.close", {"seconds": 1}, id="o-1")
    with start(settle) as first:
        first.wait_for_ids("o-1")
        first.kill()
    client.schedule("order.close", id="o-2")
    with start(settle) as second:
        second.wait_for_ids("o-1", "o-1", "o-2")


def test_term_lets_it_finish_and_settle(client: Client, start: Start) -> None:
    client.schedule("order.close", {"seconds": 1}, id="o-1")
    with start("ack") as consumer:
        consumer.wait_for_ids("o-1")
        assert consumer.terminate() == 0
        assert consumer.complaints == ""
    assert state_of(client, "o-1") is None


def test_a_job_that_raises_is_left_for_delayq(client: Client, driver: RedisStreams, start: Start) -> None:
    client.schedule("order.close", {"seconds": "soon"}, id="o-1")
    with start("ack") as consumer:
        consumer.wait_for_ids("o-1")
        wait_until(lambda: "left for delayq" in consumer.complaints, what="it says so")
        wait_until(lambda: driver.reclaim("orders").reclaimed, what="the janitor takes it back")
        consumer.wait_for_ids("o-1", "o-1")


def test_it_waits_for_a_queue_that_never_had_a_job(client: Client, start: Start) -> None:
    with start("ack") as consumer:
        wait_until(lambda: "NOGROUP" in consumer.complaints, what="it meets no group")
        client.schedule("order.close", id="o-1")
        consumer.wait_for_ids("o-1")
