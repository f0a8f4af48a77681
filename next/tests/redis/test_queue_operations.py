"""Operations on queues and on all workers, each test run with both clients."""

import logging
import re
from typing import Any

import pytest
import redis

from delayq import DelayQ, InvalidInput, QueueInUse, QueueNotFound
from delayq.core.errors import CallRefused
from delayq.redis.calls import queues as calls

MINUTE = 60_000


def test_the_counts_of_one_queue_and_of_all(client: Any) -> None:
    client.schedule("n", queue="a", delay="1h")
    client.schedule("n", queue="b")
    assert client.queues() == ["a", "b"]
    assert [(stats.queue, stats.scheduled, stats.ready) for stats in client.stats()] == [("a", 1, 0), ("b", 0, 1)]
    (stats,) = client.stats("b")
    assert (stats.lease_ms, stats.paused, stats.counters["scheduled"]) == (30_000, False, 1)
    (unknown,) = client.stats("c")
    assert (unknown.lease_ms, unknown.ready) == (0, 0)


def test_names_on_the_list_that_are_no_queues_are_passed_over(client: Any, server: redis.Redis) -> None:
    client.schedule("n", queue="a", delay="1h")
    server.sadd("test:queues", b"\xff", "two words", "")
    assert client.queues() == ["a"]
    assert len(client.stats()) == 1


def test_a_damaged_queue_does_not_keep_back_the_counts_of_the_others(client: Any, server: redis.Redis) -> None:
    for name in "abc":
        client.schedule("n", queue=name, delay="1h")
    server.set("test:{b}:failed", "no sorted set")
    found = client.stats()
    assert [(stats.queue, stats.scheduled) for stats in found] == [("a", 1), ("b", 0), ("c", 1)]
    assert [stats.error.partition("refused ")[2] for stats in found if stats.error] == [
        "stats in the queue b: WRONGTYPE Operation against a key holding the wrong kind of value. Another program "
        "overwrote a key of this queue. To find the key, run `TYPE` on all keys of the queue."
    ]
    with pytest.raises(CallRefused, match="WRONGTYPE"):
        client.stats("b")


def test_what_falls_due_is_counted_by_spans_of_time(client: Any, server: redis.Redis) -> None:
    for delay in ("30s", "90s", "100s", "1h"):
        client.schedule("n", delay=delay)
    server.zadd("test:{default}:scheduled", {"late": 5})
    upcoming = client.upcoming(span="1m", spans=3)
    assert (upcoming.overdue, upcoming.counts, upcoming.later) == (1, [1, 2, 0], 1)
    assert (upcoming.queue, upcoming.span_ms) == ("default", MINUTE)
    server.zrem("test:{default}:scheduled", "late")


@pytest.mark.parametrize("spans", [0, -1, 10_001, True])
def test_spans_of_time_have_bounds(client: Any, spans: int) -> None:
    with pytest.raises(InvalidInput, match=r"spans is .*\. Use a whole number from 1 to 10,000\."):
        client.upcoming(spans=spans)


def test_a_paused_queue_makes_no_job_ready(client: Any) -> None:
    assert client.pause("orders") == 0
    client.schedule("n", queue="orders")
    (stats,) = client.stats("orders")
    assert (stats.paused, stats.paused_until_ms, stats.scheduled, stats.ready) == (True, 0, 1, 0)
    client.resume("orders")
    assert not client.stats("orders")[0].paused
    until_ms = client.pause("orders", duration="1h")
    assert client.stats("orders")[0].paused_until_ms == until_ms > 0


def test_orders_to_all_workers_can_be_read(client: Any) -> None:
    assert client.control().paused_until_ms is None
    paused = client.pause_all(duration="1h", reason="deploy")
    assert (paused.paused_until_ms - paused.now_ms, paused.paused_reason) == (60 * MINUTE, "deploy")
    maintained = client.start_maintenance(reason="move")
    assert (maintained.maintenance_until_ms, maintained.reason) == (0, "move")
    assert maintained.maintenance_since_ms == maintained.now_ms
    restarted = client.restart_workers()
    assert restarted.restart_ms == restarted.now_ms
    assert client.control().paused_until_ms == paused.paused_until_ms
    assert client.resume_all().paused_until_ms is None
    assert client.end_maintenance().maintenance_until_ms is None


def test_clearing_drops_what_waits(client: Any) -> None:
    for n in range(600):
        client.schedule("n", id=f"job-{n}", delay="1h" if n % 2 else None)
    client.archive("job-1")
    assert client.clear() == 599
    assert client.clear() == 0
    assert [job.id for job in client.iter_jobs("failed")] == ["job-1"]


def test_a_queue_keeps_its_lease(client: Any) -> None:
    with pytest.raises(QueueNotFound, match="No queue 'orders' is known"):
        client.queue_show("orders")
    with pytest.raises(InvalidInput, match="too short"):
        client.queue_set("orders", lease="99ms")
    view = client.queue_set("orders", lease="2m")
    assert (view.queue, view.lease_ms, view.shards, view.paused_until_ms) == ("orders", 2 * MINUTE, 1, None)
    client.schedule("n", queue="orders", delay="1h")
    assert client.queue_show("orders").holds["scheduled"] == 1
    assert client.stats("orders")[0].lease_ms == 2 * MINUTE


def test_a_queue_with_a_damaged_lease_is_known(client: Any, server: redis.Redis) -> None:
    client.schedule("n", queue="orders", delay="1h")
    server.hset("test:{orders}:meta", "lease_ms", "long")
    assert client.queue_show("orders").holds["scheduled"] == 1


def test_a_queue_that_holds_jobs_is_not_removed(client: Any) -> None:
    client.schedule("n", queue="orders", delay="1h")
    with pytest.raises(
        QueueInUse, match=r"The queue 'orders' is not empty: 1 scheduled\. `delayq clear --queue orders`"
    ):
        client.queue_remove("orders")
    assert client.queues() == ["orders"]


def test_a_removed_queue_leaves_nothing_and_can_come_back(client: Any, server: redis.Redis) -> None:
    client.schedule("n", id="one", queue="orders", delay="1h")
    client.cancel("one", queue="orders")
    client.queue_remove("orders")
    assert server.keys("test:{orders}:[^o]*") == []  # the answer to the cancel is kept for a minute
    client.schedule("n", queue="orders", delay="1h")
    assert client.queues() == ["orders"]


@pytest.mark.parametrize("moment", ["unlist_queue", "remove"])
def test_a_producer_that_comes_while_a_queue_is_removed_keeps_it(
    client: Any, url: str, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    client.queue_set("orders", lease="1m")
    original = getattr(calls, moment)

    def produce_first(*args: Any, **options: Any) -> Any:
        if not options.get("look"):
            with DelayQ(url, prefix="test") as producer:
                producer.schedule("n", id="one", queue="orders", delay="1h")
        return original(*args, **options)

    monkeypatch.setattr(calls, moment, produce_first)
    with pytest.raises(QueueInUse):
        client.queue_remove("orders")
    assert client.queues() == ["orders"]
    assert client.get("one", queue="orders").state == "scheduled"


def test_a_refused_listing_is_told_once_and_made_up_for(
    client: Any, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    server.set("test:queues", "no set")
    with caplog.at_level(logging.WARNING, logger="delayq"):
        for n in range(3):
            assert client.schedule("n", id=f"job-{n}", queue="orders", delay="1h").outcome == "created"
    assert [record.message.partition(" (")[0] for record in caplog.records] == [
        "queue orders could not be added to the list of queues"
    ]
    server.delete("test:queues")
    client.schedule("n", queue="orders", delay="1h")
    assert client.queues() == ["orders"]


def test_a_refused_listing_is_one_sentence(client: Any, server: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
    server.set("test:queues", "no set")
    with caplog.at_level(logging.WARNING, logger="delayq"):
        client.schedule("n", queue="orders", delay="1h")
    (record,) = caplog.records
    assert re.fullmatch(
        r"queue orders could not be added to the list of queues \(Redis at unix:\S+ refused SADD: WRONGTYPE [^.]+\); "
        r"if it is not on the list yet, only workers with --queue orders serve it",
        record.message,
    )


def test_a_refused_listing_is_not_told_beside_a_refused_job(
    client: Any, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    server.set("test:queues", "no set")
    server.set("test:{orders}:jobs", "no hash")
    with caplog.at_level(logging.WARNING, logger="delayq"), pytest.raises(CallRefused, match="refused schedule"):
        client.schedule("n", queue="orders", delay="1h")
    assert caplog.records == []
