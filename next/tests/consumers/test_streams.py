"""plain_stream and node_stream beside workers of delayq: each job runs once, wherever it was scheduled."""

import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
import redis

from delayq import DelayQ
from tests.consumers.programs import CONSUMERS, Program, Programs, node, optional
from tests.support.waiting import wait_until

pytestmark = pytest.mark.processes

APP = """
import time
from delayq import job

@job("order.close", queue="orders")
def close(order_id: int, seconds: float = 0.02) -> None:
    time.sleep(seconds)
    print("order.close", f"close-{order_id}", flush=True)
"""
PLAIN = str(CONSUMERS / "plain_stream" / "consumer.py")

Start = Callable[[], Program]


@pytest.fixture(params=["xack", "ack", "node"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start_consumer(form: str, programs: Programs, raw: redis.Redis, request: pytest.FixtureRequest) -> Start:
    """Starts the consumer with the name `outside`, and waits until it reads the stream."""
    if form == "node":
        folder: Path = request.getfixturevalue("node_folder")
        words = [node(), str(folder / "consumer.mjs"), "orders", "lua", "outside"]
    else:
        words = [sys.executable, PLAIN, "orders", "--name", "outside", *(["--scripts", "lua"] if form == "ack" else [])]
    numbers = count()

    def start() -> Program:
        wait_until(lambda: raw.exists("delayq:{orders}:stream"))
        program = programs.start(*words, log=f"outside-{next(numbers)}")
        wait_until(lambda: "outside" in consumers_of(raw))
        return program

    return start


def consumers_of(raw: redis.Redis) -> set[str]:
    return {row["name"] for row in raw.xinfo_consumers("delayq:{orders}:stream", "delayq")}


def is_empty(q: DelayQ) -> bool:
    (stats,) = q.stats("orders")
    return not stats.scheduled + stats.ready + stats.reserved + stats.failed + stats.completed


def test_a_consumer_and_a_worker_share_the_jobs_of_all_producers(
    form: str, start_consumer: Start, programs: Programs, q: DelayQ, producer_of: Callable[[str], list[str]]
) -> None:
    (programs.folder / "app.py").write_text(APP)
    worker = programs.start_delayq("work", "--app", "app", "--queue", "orders", DELAYQ_TIDY_EVERY="100ms")
    consumer = start_consumer()
    producers = [optional(lambda name=name: producer_of(name)) for name in ("php", "node", "go")]  # type: ignore[misc]
    wanted = []
    for n, producer in enumerate(filter(None, producers)):
        for order in (n, n + 10):
            assert programs.run(*producer, "schedule", str(order)) == "created"
        assert programs.run(*producer, "cancel", str(n)) == "cancelled"
        wanted.append(f"close-{n + 10}")
    assert sorted(job.id for job in q.iter_jobs("scheduled")) == wanted
    for id in wanted:
        q.run_now(id)
    for order in range(100, 140):
        wanted.append(q.schedule("order.close", {"order_id": order, "seconds": 0.02}, id=f"close-{order}").id)
    wait_until(lambda: is_empty(q))
    assert sorted(consumer.lines + worker.lines) == sorted(f"order.close {id}" for id in wanted)
    assert consumer.lines
    assert worker.lines
    assert consumer.errors == ""
    assert consumer.end() == 0


def test_a_job_without_a_payload_is_done(form: str, start_consumer: Start, programs: Programs, q: DelayQ) -> None:
    programs.start_delayq("move", DELAYQ_TIDY_EVERY="100ms")
    q.schedule("order.close", None, id="close-42")
    consumer = start_consumer()
    wait_until(lambda: is_empty(q))
    assert (consumer.lines, consumer.errors) == (["order.close close-42"], "")


def test_a_long_job_keeps_its_lease(form: str, start_consumer: Start, programs: Programs, q: DelayQ) -> None:
    q.queue_set("orders", lease="900ms")
    programs.start_delayq("move", DELAYQ_LEASE="900ms", DELAYQ_TIDY_EVERY="100ms")
    consumer = start_consumer()
    q.schedule("order.close", {"order_id": 42, "seconds": 2.0}, id="close-42")
    wait_until(lambda: is_empty(q))
    assert (consumer.lines, consumer.errors) == (["order.close close-42"], "")


def test_a_restarted_consumer_continues_with_its_job(
    form: str, start_consumer: Start, programs: Programs, q: DelayQ
) -> None:
    programs.start_delayq("move", DELAYQ_TIDY_EVERY="100ms")
    q.schedule("order.close", {"order_id": 42, "seconds": 1}, id="close-42")
    killed = start_consumer()
    wait_until(lambda: q.stats("orders")[0].reserved == 1)
    killed.kill()
    assert killed.lines == []
    consumer = start_consumer()
    wait_until(lambda: is_empty(q))
    assert consumer.lines == ["order.close close-42"]


def test_a_job_that_was_cancelled_while_another_consumer_had_it_does_not_run(
    form: str, start_consumer: Start, programs: Programs, q: DelayQ, raw: redis.Redis
) -> None:
    q.queue_set("orders", lease="400ms")
    q.schedule("order.close", {"order_id": 42}, id="close-42")
    raw.xreadgroup("delayq", "vanished", {"delayq:{orders}:stream": ">"})
    assert q.cancel("close-42", running=True) == "running"
    programs.start_delayq("move", DELAYQ_LEASE="400ms", DELAYQ_TIDY_EVERY="100ms")
    consumer = start_consumer()
    wait_until(lambda: is_empty(q))
    assert (consumer.lines, consumer.errors) == ([], "")


def test_a_job_that_raises_is_delivered_again_and_then_fails(
    form: str, start_consumer: Start, programs: Programs, q: DelayQ
) -> None:
    q.queue_set("orders", lease="400ms")
    programs.start_delayq("move", DELAYQ_LEASE="400ms", DELAYQ_MAX_RECOVERIES="1")
    no_number = {"valueOf": None, "toString": None}  # both languages refuse to calculate with it
    q.schedule("order.close", {"seconds": no_number}, id="close-42")
    consumer = start_consumer()
    wait_until(lambda: q.stats("orders")[0].failed == 1)
    assert len(consumer.errors.splitlines()) == 2
    assert "close-42" in consumer.errors
