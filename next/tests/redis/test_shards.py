"""Clients and a queue with several shards."""

import asyncio
import random
import threading
from typing import Any

import pytest
import redis

from delayq import AsyncDelayQ, DelayQ, JobSpec
from delayq.core.chain import BatchPlan, Chain, link_of
from delayq.core.errors import BackendUnavailable, InvalidInput, JobNotFound, QueueInUse
from delayq.core.options import DEFAULTS, Options
from delayq.core.shards import shard_names
from delayq.redis.calls.shards import CHANGING
from delayq.redis.connection.blocking import BlockingLeaf
from delayq.redis.connection.server import ServerExecutor
from delayq.redis.connection.url import Address
from delayq.redis.keys import Keys
from delayq.redis.worker.queue_keeper import RedisQueueKeeper
from tests.support.waiting import wait_until

NAMES = shard_names("orders", 4)


@pytest.fixture
def client(url: str, server: redis.Redis) -> Any:
    with DelayQ(url) as client:
        client.queue_set("orders", shards=4)
        yield client


def ids_in(server: redis.Redis, role: str = "jobs") -> dict[str, set[str]]:
    keys = {name: f"delayq:{{{name}}}:{role}" for name in shard_names("orders", 64)}
    rows: dict[str, Any] = {name: set(server.hkeys(key)) for name, key in keys.items()}
    return {name: ids for name, ids in rows.items() if ids}


def test_jobs_are_spread_and_found_by_their_ids(client: DelayQ, url: str, server: redis.Redis) -> None:
    specs = [JobSpec(name="n", id=f"job-{n}", queue="orders", delay="1h") for n in range(100)]
    assert {ref.outcome for ref in client.schedule_many(specs)} == {"created"}
    assert client.schedule("n", id="one", queue="orders", delay="1h").outcome == "created"
    assert client.schedule("n", id="one", queue="orders", delay="1h").outcome == "kept"
    spread = ids_in(server)
    assert sorted(spread) == NAMES
    assert sum(map(len, spread.values())) == 101
    (stats,) = client.stats("orders")
    assert (stats.queue, stats.scheduled, stats.counters["scheduled"]) == ("orders", 101, 101)
    assert client.queues() == ["orders"]
    with DelayQ(url) as stranger:  # does not know the number
        job = stranger.get("job-7", queue="orders")
        assert job is not None and (job.queue, job.shard) == ("orders", 0 if "job-7" in spread["orders"] else job.shard)
        assert {stranger.cancel(f"job-{n}", queue="orders") for n in range(100)} == {"cancelled"}
        assert stranger.reschedule("one", queue="orders", delay="2h").outcome == "rescheduled"
        assert stranger.cancel("nobody", queue="orders") == "unknown"
        with pytest.raises(JobNotFound):
            stranger.run_now("nobody", queue="orders")


def test_a_producer_that_does_not_know_the_number_is_told(client: DelayQ, url: str, server: redis.Redis) -> None:
    with DelayQ(url) as stranger:
        refs = stranger.schedule_many([JobSpec(name="n", queue="orders", delay="1h") for _ in range(600)])
        assert {ref.outcome for ref in refs} == {"created"}
        assert sorted(ids_in(server)) == NAMES
        assert stranger.schedule("n", id="x", queue="orders", delay="1h", on_conflict="replace").outcome == "created"
        assert stranger.schedule("n", id="x", queue="orders", delay="2h", on_conflict="replace").outcome == "replaced"
        assert client.cancel("x", queue="orders") == "cancelled"


def test_an_async_client(client: DelayQ, url: str) -> None:
    async def story() -> list[str]:
        async with AsyncDelayQ(url) as stranger:
            refs = [await stranger.schedule("n", queue="orders", delay="1h") for _ in range(8)]
            return [await stranger.cancel(ref.id, queue="orders") for ref in refs]

    assert asyncio.run(story()) == ["cancelled"] * 8


def test_the_number_changes_only_without_jobs(client: DelayQ, server: redis.Redis) -> None:
    client.schedule_many([JobSpec(name="n", id=str(n), queue="orders", delay="1h") for n in range(5)])
    with pytest.raises(QueueInUse, match=r"'orders' is not empty: 5 scheduled\."):
        client.queue_set("orders", shards=2)
    assert client.queue_show("orders").shards == 4
    assert client.clear("orders") == 5
    assert client.queue_set("orders", shards=2).shards == 2
    assert {server.hget(f"delayq:{{{name}}}:meta", "shards") for name in NAMES} == {"2"}
    for wrong in (0, 65):
        with pytest.raises(InvalidInput, match="shards is"):
            client.queue_set("orders", shards=wrong)
    with pytest.raises(InvalidInput, match="both missing"):
        client.queue_set("orders")


def test_the_loops_learn_the_number_with_each_promotion(client: DelayQ, url: str) -> None:
    keeper = RedisQueueKeeper(ServerExecutor(BlockingLeaf(Address(url))), Keys(), DEFAULTS, name="loops")
    keeper.queues()
    client.schedule("n", queue="orders", delay="1h")
    for shards in (4, 2, 1):
        client.clear("orders")
        client.queue_set("orders", shards=shards)
        assert keeper.promote("orders").shards == shards
        keeper.promote("orders#2")
        assert keeper.queues() == shard_names("orders", shards)


def test_operations_on_a_queue_reach_all_shards(client: DelayQ, server: redis.Redis) -> None:
    client.schedule_many([JobSpec(name="n", id=str(n), queue="orders", delay=f"{60 * n + 30}s") for n in range(1, 41)])
    assert client.upcoming("orders", span="10m", spans=3).counts == [9, 10, 10]
    assert client.pause("orders") == 0
    assert [server.hget(f"delayq:{{{name}}}:meta", "paused_until_ms") for name in NAMES] == ["0"] * 4
    client.resume("orders")
    assert [server.hget(f"delayq:{{{name}}}:meta", "paused_until_ms") for name in NAMES] == [None] * 4
    assert client.queue_set("orders", lease="77s").lease_ms == 77_000
    assert [server.hget(f"delayq:{{{name}}}:meta", "lease_ms") for name in NAMES] == ["77000"] * 4
    assert [job.id for job in client.iter_jobs("scheduled", queue="orders")] == [str(n) for n in range(1, 41)]
    page = client.list_jobs("scheduled", queue="orders", limit=7)
    assert client.list_jobs("scheduled", queue="orders", cursor=page.cursor, limit=7).jobs[0].id == "8"
    for n in range(1, 41):
        client.archive(str(n), queue="orders")
    assert client.queue_show("orders").holds["failed"] == 40
    assert len(list(client.iter_failed("orders"))) == 40
    assert [retried.error for retried in client.retry_failed("orders")] == [None] * 40
    for n in range(1, 31):
        client.archive(str(n), queue="orders")
    assert client.prune_failed("orders", older="0s") == 30
    for n in range(31, 41):
        client.archive(str(n), queue="orders")
    assert client.forget([str(n) for n in range(31, 42)], queue="orders") == [*["forgotten"] * 10, "unknown"]
    client.queue_remove("orders")
    assert client.queues() == []
    assert client.schedule("n", id="1", queue="orders", delay="1h").outcome == "created"
    assert list(ids_in(server)) == ["orders"]


def test_a_change_that_was_interrupted(client: DelayQ, server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers wait and are refused, reads go on, and another change completes it."""
    monkeypatch.setattr("delayq.redis.operations.scheduling.PATIENCE", 0.2)
    for name in shard_names("orders", 8):
        server.hset(f"delayq:{{{name}}}:meta", "shards", CHANGING + 4)
    with pytest.raises(BackendUnavailable, match=r"is being changed\. Nothing was stored"):
        client.schedule("n", queue="orders", delay="1h")
    assert client.stats("orders")[0].scheduled == 0
    assert client.cancel("x", queue="orders") == "unknown"
    assert client.queue_set("orders", shards=8).shards == 8
    assert client.schedule("n", queue="orders", delay="1h").outcome == "created"


def test_a_job_that_arrives_during_a_change(
    client: DelayQ, url: str, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change is refused, and all shards have the old number again."""
    from delayq.redis import change_shards

    give = change_shards._give

    async def give_late(session: Any, queue: str, shards: Any, number: int) -> bool:
        if number > CHANGING:
            with DelayQ(url) as other:
                other.schedule("n", id="late", queue="orders", delay="1h")
        return await give(session, queue, shards, number)

    monkeypatch.setattr(change_shards, "_give", give_late)
    with pytest.raises(QueueInUse, match=r"1 scheduled"):
        client.queue_set("orders", shards=8)
    assert {server.hget(f"delayq:{{{name}}}:meta", "shards") for name in shard_names("orders", 8)} == {"4"}
    assert client.cancel("late", queue="orders") == "cancelled"


def test_a_job_that_arrives_and_ends_during_a_change(
    client: DelayQ, url: str, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal has the number of jobs too."""
    from delayq.redis import change_shards

    give = change_shards._give

    async def give_late(session: Any, queue: str, shards: Any, number: int) -> bool:
        if number < CHANGING:
            return await give(session, queue, shards, number)
        with DelayQ(url) as other:
            other.schedule("n", id="late", queue="orders", delay="1h")
            is_marked = await give(session, queue, shards, number)
            server.hset("delayq:{orders}:meta", "shards", 4)
            for name in shard_names("orders", 4):
                server.hset(f"delayq:{{{name}}}:meta", "shards", 4)
            other.cancel("late", queue="orders")
        return is_marked

    monkeypatch.setattr(change_shards, "_give", give_late)
    with pytest.raises(QueueInUse) as raised:
        client.queue_set("orders", shards=8)
    assert raised.value.message == "The queue 'orders' received a job during the change. Now, it has 0 jobs."


def test_a_change_that_was_interrupted_after_the_first_shard(client: DelayQ, server: redis.Redis) -> None:
    """No shard but the first takes jobs, and the same change completes it although there are jobs."""
    for name in shard_names("orders", 8):
        server.hset(f"delayq:{{{name}}}:meta", "shards", CHANGING + 4)
    server.hset("delayq:{orders}:meta", "shards", 8)
    assert client.schedule("n", id="order-15", queue="orders", delay="1h").outcome == "created"
    assert client.queue_set("orders", shards=8).shards == 8
    assert client.schedule("n", id="order-1", queue="orders", delay="1h").outcome == "created"
    assert list(ids_in(server)) == ["orders", "orders#7"]


def test_new_shards_have_the_pause_of_the_queue(client: DelayQ, server: redis.Redis) -> None:
    def pauses(count: int) -> list[Any]:
        return [server.hget(f"delayq:{{{name}}}:meta", "paused_until_ms") for name in shard_names("orders", count)]

    client.pause("orders")
    client.queue_set("orders", shards=8)
    assert pauses(8) == ["0"] * 8
    until_ms = client.pause("orders", duration="1h")
    client.queue_set("orders", shards=2)
    client.queue_set("orders", shards=3)
    assert [abs(int(found) - until_ms) < 10_000 for found in pauses(3)] == [True] * 3
    client.resume("orders")
    client.queue_set("orders", shards=8)
    assert pauses(8) == [None] * 8


def test_only_one_command_at_a_time_changes_the_number(
    client: DelayQ, url: str, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from delayq.redis import change_shards

    give, refused = change_shards._give, []

    async def give_beside(session: Any, queue: str, shards: Any, number: int) -> bool:
        if number > CHANGING:
            with DelayQ(url) as other, pytest.raises(QueueInUse, match="is being changed by another") as raised:
                other.queue_set("orders", shards=2)
            refused.append(raised.value.hint)
        return await give(session, queue, shards, number)

    monkeypatch.setattr(change_shards, "_give", give_beside)
    assert client.queue_set("orders", shards=8).shards == 8
    assert refused == ["Try again when that command has ended, or 30 s after it crashed."]
    assert not server.exists("delayq:{orders}:once:shards")
    server.set("delayq:{orders}:once:shards", "of a command that crashed", px=50)
    wait_until(lambda: not server.exists("delayq:{orders}:once:shards"))
    assert client.queue_set("orders", shards=1).shards == 1


@pytest.mark.parametrize(
    ("failing", "is_undone", "words"),
    [
        ("read_holds", True, "Check it. The number of shards is unchanged. You can safely repeat the change: "),
        ("_copy_pause", True, "Check it. The number of shards is unchanged. You can safely repeat the change: "),
        ("_copy_pause", False, "Check it. The change is incomplete, so new jobs may be refused. Repeat it until it "),
    ],
)
def test_a_failed_change_says_whether_it_must_be_repeated(
    client: DelayQ, server: redis.Redis, monkeypatch: pytest.MonkeyPatch, *, failing: str, is_undone: bool, words: str
) -> None:
    from delayq.redis import change_shards

    async def fail(*_: Any) -> None:
        if not is_undone:
            monkeypatch.setattr(change_shards, "_give_first", fail)
        raise BackendUnavailable("No reply.", hint="Check it.")

    with monkeypatch.context() as patch:
        patch.setattr(change_shards, failing, fail)
        with pytest.raises(BackendUnavailable) as raised:
            client.queue_set("orders", shards=8)
        assert raised.value.hint.startswith(words)
        assert raised.value.hint.endswith("`delayq queue set orders --shards 8`.")
        assert str(raised.value) == f"No reply. {raised.value.hint}"
    monkeypatch.undo()
    assert server.hget("delayq:{orders}:meta", "shards") == ("4" if is_undone else str(CHANGING + 4))
    assert client.queue_set("orders", shards=8).shards == 8


def test_changes_beside_producers_and_cancels(url: str, server: redis.Redis) -> None:
    """No job is lost or in two shards, and no id that exists is unknown."""
    rng = random.Random(7)
    ended = threading.Event()
    wrong: list[str] = []
    stored: list[int] = [0]

    def produce(number: int) -> None:
        pauses = random.Random(number)
        with DelayQ(url) as client, DelayQ(url) as other:
            while not ended.is_set():
                ref = client.schedule("n", queue="orders", delay="1h")
                stored[0] += 1
                job = other.get(ref.id, queue="orders")
                answer = other.cancel(ref.id, queue="orders")
                if job is None or answer != "cancelled":
                    wrong.append(f"{ref.id}: {job}, {answer}")
                ended.wait(pauses.uniform(0, 0.02))

    producers = [threading.Thread(target=produce, args=(n,)) for n in range(4)]
    for producer in producers:
        producer.start()
    changed = 0
    with DelayQ(url) as operator:
        while changed < 200:
            try:
                operator.queue_set("orders", shards=rng.choice([1, 2, 3, 8, 16, 64]))
                changed += 1
            except QueueInUse:
                pass
    ended.set()
    for producer in producers:
        producer.join()
    assert wrong == []
    assert ids_in(server) == {}
    assert stored[0] > 20


def test_a_client_that_does_not_know_the_number_cancels_a_batch(client: DelayQ, url: str, server: redis.Redis) -> None:
    links = [link_of(JobSpec(name="n", queue="orders", delay="1h"), Options(), 0, job_id=f"b.{n}") for n in range(20)]
    client.batches.send(BatchPlan("b", members=[Chain([link]) for link in links]))
    assert sorted(ids_in(server)) == NAMES
    with DelayQ(url) as stranger:
        stranger.batches.cancel("b")
    assert ids_in(server) == {}
