"""The whole life of a job, on one server, behind sentinels and in a cluster: one file, one code path."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from delayq import JobContext, Retry
from delayq.core.errors import Conflict, JobNotFound
from delayq.core.options import Options
from delayq.core.states import Answer, State
from delayq.redis.aio import AsyncClient
from delayq.redis.connect import Connector
from delayq.redis.wakeups import PubSubWakeUps
from tests.cli.conftest import Inline
from tests.support.cli import Cli
from tests.support.job_types import report
from tests.support.station import Station
from tests.support.supervision import House
from tests.support.topologies import Group, Kind
from tests.support.waiting import wait_until

QUEUES = ("orders", "mails", "parcels", "vip")
"""In a cluster of three, each of the nodes has at least one of them; see the first test."""


@pytest.fixture
def house(redis_url: str, tmp_path: Path) -> Iterator[House]:
    with closing(House(redis_url, tmp_path, lease_ms=1_000)) as house:
        yield house


def test_the_queues_of_this_file_lie_on_all_nodes(group: Group) -> None:
    owners = {group.owner(queue).pid for queue in QUEUES}

    assert owners == {server.pid for server in group.primaries()}


def test_what_producers_and_operators_ask(station: Station) -> None:
    client = station.client
    refs = client.schedule_many([{"name": "n", "queue": QUEUES[n % 4], "delay": "1h", "id": f"j{n}"} for n in range(8)])
    assert [(ref.id, ref.queue, ref.outcome) for ref in refs] == [
        (f"j{n}", QUEUES[n % 4], Answer.CREATED) for n in range(8)
    ]
    assert client.schedule("n", id="j0", queue="orders").outcome is Answer.KEPT
    replaced = client.schedule("n", {"a": 1}, id="j0", queue="orders", delay="1h", on_conflict="replace")
    assert replaced.outcome is Answer.REPLACED
    with pytest.raises(Conflict):
        client.schedule("n", id="j1", queue="mails", on_conflict="error")
    assert client.reschedule("j1", queue="mails", delay="2h").outcome is Answer.RESCHEDULED
    assert client.run_now("j2", queue="parcels").state is State.READY
    assert [client.cancel(f"j{n}", queue=QUEUES[n % 4]) for n in (2, 3)] == [Answer.CANCELLED, Answer.CANCELLED]
    with pytest.raises(JobNotFound):
        client.reschedule("j3", queue="vip", delay="1h")

    assert client.queues() == sorted(QUEUES)
    assert {one.queue: one.scheduled + one.ready for one in client.stats()} == {
        "orders": 2, "mails": 2, "parcels": 1, "vip": 1,
    }  # fmt: skip
    assert {info.id for queue in QUEUES for info in client.iter_jobs("scheduled", queue=queue)} == {
        "j0", "j1", "j4", "j5", "j6", "j7",
    }  # fmt: skip
    client.pause("vip")
    assert [one.queue for one in client.stats() if one.paused] == ["vip"]
    client.resume("vip")
    assert client.pause_all().paused
    assert not client.resume_all().paused
    assert client.clear(queue="mails") == 2


async def test_the_same_awaited(redis_url: str) -> None:
    connector = Connector(redis_url)
    client = AsyncClient(connector, Options())
    refs = await client.schedule_many([{"name": "n", "queue": queue, "delay": "1h", "id": queue} for queue in QUEUES])
    assert [ref.outcome for ref in refs] == [Answer.CREATED] * 4
    assert (await client.run_now("vip", queue="vip")).state is State.READY
    assert await client.cancel("mails", queue="mails") is Answer.CANCELLED
    found = await client.get("orders", queue="orders")
    assert found is not None
    assert found.state is State.SCHEDULED
    assert {one.queue: one.scheduled + one.ready for one in await client.stats()} == {
        "orders": 1, "mails": 0, "parcels": 1, "vip": 1,
    }  # fmt: skip
    listener = await connector.asubscriber()
    await listener.subscribe("delayq:wake")
    await listener.get_message(ignore_subscribe_messages=False, timeout=5.0)
    soon = await client.schedule("n", queue="parcels", delay="1m")
    # In a cluster the hints of the jobs above may still be on their way from node to node.
    while (message := await listener.get_message(timeout=5.0))["data"] != f"parcels {soon.due_ms}".encode():
        assert message["data"].split()[0].decode() in QUEUES
    await listener.aclose()  # type: ignore[no-untyped-call]  # redis-py
    await connector.aclose()


def test_jobs_of_all_queues_run_are_retried_fail_and_are_retried_by_hand(station: Station) -> None:
    ran = station.tape()

    def step(context: JobContext, does: str) -> None:
        ran.append((context.queue, does, context.attempt))
        if does == "again" and context.attempt == 1:
            raise Retry("1ms")
        if does == "fail" and context.attempt <= 2:
            raise ValueError("no")

    station.handles("step", step, tries=2, backoff="1ms", retention="1h")
    for queue in QUEUES:
        for does in ("work", "again", "fail"):
            station.client.schedule("step", {"does": does}, queue=queue, id=does, delay="20ms")
    with station.working(queues=QUEUES, mover=True):
        for queue in QUEUES:
            station.until("work", State.COMPLETED, queue=queue)
            station.until("again", State.COMPLETED, queue=queue)
            station.until("fail", State.FAILED, queue=queue)
        assert sorted(ran[:]) == sorted(
            (queue, *run)
            for queue in QUEUES
            for run in (("work", 1), ("again", 1), ("again", 2), ("fail", 1), ("fail", 2))
        )
        [worker] = [one for one in station.client.workers() if set(one.queues) == set(QUEUES)][:1]
        assert worker.name.startswith("dq:")
        assert [info.id for info in station.client.iter_failed("vip")] == ["fail"]
        [retried] = station.client.retry_failed("vip")
        assert retried.error is None
        wait_until(lambda: ran.count(("vip", "fail", 1)) == 2, what="it is tried again from the start")
        station.until("fail", State.FAILED, queue="vip")


def test_a_killed_worker_s_job_is_taken_back_and_a_running_one_is_stopped(house: House) -> None:
    house.schedule("held", "a")
    with house.open() as shop:
        child = house.until_started("a")
        os.kill(shop.pid, signal.SIGKILL)
        os.kill(child, signal.SIGKILL)
        shop.ended()
        with house.open():
            house.until_started("a", times=2)
            house.let_go()
            house.until_gone("a")
            house.schedule("good", "b", seconds=60)
            house.until_started("b")
            assert house.client.cancel("b", running=True) is Answer.RUNNING
            wait_until(lambda: house.state("b") is not State.RESERVED, what="it was stopped")


def test_a_hint_reaches_a_listener_whichever_node_has_the_queue(station: Station) -> None:
    wake_ups = PubSubWakeUps(station.connector, "delayq")
    assert wake_ups.wait(5.0) is None
    for n, queue in enumerate(QUEUES):
        station.client.schedule("n", queue=queue, delay=f"{60 - n}m")
        assert list(wake_ups.wait(5.0) or ()) == [queue]
    wake_ups.close()


def test_commands(cli: Cli, inline: Inline, topology: Kind, group: Group) -> None:
    inline.ok("schedule", "order.close", "--in", "0s", "--data", '{"order_id": 7}', "--queue", "orders", "--id", "o7")
    inline.ok("schedule", "order.close", "--in", "1h", "--queue", "mails", "--id", "m1")
    assert "closed 7" in cli.ok("work", "--app", "shop", "--queue", "orders,mails", "--stop-when-empty").out
    stats = {row["queue"]: row["scheduled"] for row in inline.ok("stats", "--json").json["queues"]}
    assert stats == {"orders": 0, "mails": 1}
    assert [row["id"] for row in inline.ok("list", "--queue", "mails", "--json").documents] == ["m1"]
    assert inline.ok("workers", "--json").documents == []
    assert inline.ok("failed", "list", "--json").documents == []
    assert inline.ok("top", "--once").out
    inline.ok("pause", "mails")
    inline.ok("resume", "mails")
    inline.ok("cancel", "m1", "--queue", "mails")
    findings = [(found["code"], found["where"]) for found in inline("doctor", "--json").json["findings"]]
    expected = {"cut-off"} if topology is not Kind.STANDALONE else set()
    assert {code for code, _ in findings} - {"no-persistence", "no-mover", "no-worker", "bad-server"} == expected
    assert len({where for code, where in findings if code == "cut-off"}) == len(group.primaries()) * len(expected)


def test_job_types_of_queues_on_all_nodes(house: House) -> None:
    house.schedule("noop", "a", "b")
    with house.open(mover=True) as shop:
        house.until_gone("a", "b")
        shop.signal(signal.SIGTERM)
        assert shop.ended() == 0
    for queue in QUEUES:
        report(house.client, queue, "order.close", [5.0], done=1)
    found = house.client.job_types(days=90).types
    assert [(one.name, one.done, one.queues) for one in found] == [
        ("order.close", 4, tuple(sorted(QUEUES))),
        ("noop", 2, ("default",)),
    ]
