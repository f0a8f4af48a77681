"""`DelayQ` and `AsyncDelayQ` as programs make them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from delayq import (
    AsyncDelayQ,
    ConfigError,
    DelayQ,
    InvalidInput,
    JobSpec,
    Settings,
    current_manager,
    dispatch,
    make_manager,
    set_manager,
)
from delayq.core.errors import BackendDamaged
from delayq.core.options import Options
from delayq.drivers.redis_streams import RedisStreams
from delayq.jobs.current import replace_manager
from delayq.redis.connect import Connector


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DELAYQ_URL", raising=False)
    monkeypatch.setenv("DELAYQ_DATA_DIR", str(tmp_path / "data"))


def test_a_job_there_and_back(redis_url: str) -> None:
    with DelayQ(redis_url) as q:
        ref = q.schedule("order.close", {"order_id": 42}, delay="15m", id="order-42", queue="orders")
        assert (ref.outcome, ref.id, ref.queue) == ("created", "order-42", "orders")
        info = q.get("order-42", queue="orders")
        assert info is not None
        assert info.data == {"order_id": 42}
        assert q.schedule_many([JobSpec(name="x"), {"name": "x", "delay": "1h"}])[1].state == "scheduled"
        assert q.cancel("order-42", queue="orders") == "cancelled"
        assert q.prune_failed("orders", older="0s") == 0
        assert q.workers() == []


async def test_the_same_awaited(redis_url: str) -> None:
    async with AsyncDelayQ(redis_url) as q:
        ref = await q.schedule("order.close", {"order_id": 42}, delay="15m", id="order-42")
        assert ref.outcome == "created"
        assert [info.id async for info in q.iter_jobs("scheduled")] == ["order-42"]
        assert await q.cancel("order-42") == "cancelled"
        assert await q.prune_failed(older="0s") == 0
        assert await q.workers() == []


@pytest.mark.parametrize("lease", ["99ms", "0s", "25h"])
async def test_a_lease_out_of_range_is_refused_before_anything_is_sent(lease: str) -> None:
    nowhere = "redis://127.0.0.1:1/0"
    with DelayQ(nowhere) as q, pytest.raises(InvalidInput, match=lease):
        q.queue_set("orders", lease=lease)
    async with AsyncDelayQ(nowhere) as aq:
        with pytest.raises(InvalidInput, match=lease):
            await aq.queue_set("orders", lease=lease)


def test_a_lease_at_either_end_is_taken(redis_url: str) -> None:
    with DelayQ(redis_url) as q:
        assert q.queue_set("orders", lease="100ms").lease_ms == 100
        assert q.queue_set("orders", lease="1d").lease_ms == 86_400_000


def test_the_url_may_come_from_the_settings(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "delayq.toml").write_text(f'url = "{redis_url}"\nqueue = "orders"\n')
    with DelayQ() as q:
        assert q.schedule("x", delay="1h").queue == "orders"
    monkeypatch.setenv("DELAYQ_QUEUE", "mails")
    with DelayQ() as q:
        assert q.schedule("x", delay="1h").queue == "mails"
    with DelayQ(queue="vip") as q:
        assert q.schedule("x", delay="1h").queue == "vip"


@pytest.mark.redis_prefix("shop")
def test_another_prefix(redis_url: str) -> None:
    with DelayQ(redis_url, prefix="shop") as q:
        q.schedule("x", delay="1h")
    with DelayQ(redis_url) as q:
        assert q.queues() == []


def test_settings_stand_for_all(redis_url: str) -> None:
    settings = Settings(url=redis_url, queue="orders")
    with DelayQ(settings=settings) as q:
        assert q.options.queue == "orders"
    with pytest.raises(TypeError, match="settings="):
        DelayQ(redis_url, settings=settings)


def test_a_bad_url_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="scheme"):
        DelayQ("localhost:6379")


def test_verbs_come_in_the_same_names() -> None:
    def verbs(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert verbs(DelayQ) == verbs(AsyncDelayQ)


REFUSED: dict[str, tuple[str, str, Callable[[DelayQ], object]]] = {
    "schedule": ("jobs", "schedule", lambda q: q.schedule("x", delay="1h", queue="orders")),
    "schedule_many": ("jobs", "schedule", lambda q: q.schedule_many([{"name": "x", "delay": "1h", "queue": "orders"}])),
    "cancel": ("cancel", "cancel", lambda q: q.cancel("o1", queue="orders")),
    "get": ("scheduled", "get", lambda q: q.get("o1", queue="orders")),
    "stats": ("meta", "stats", lambda q: q.stats("orders")),
}


@pytest.mark.parametrize("verb", REFUSED)
def test_a_key_of_the_wrong_type_is_told_with_its_queue(redis_url: str, redis_client: redis.Redis, verb: str) -> None:
    key, script, ask = REFUSED[verb]
    redis_client.set(f"delayq:{{orders}}:{key}", "somebody else's")
    with DelayQ(redis_url) as q, pytest.raises(BackendDamaged) as refused:
        ask(q)
    redis_client.flushall()
    assert f"A key of the queue orders (asked by {script}.lua)" in refused.value.message


async def test_the_same_is_told_to_who_awaits(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.set("delayq:{orders}:jobs", "somebody else's")
    async with AsyncDelayQ(redis_url) as q:
        with pytest.raises(BackendDamaged, match=r"the queue orders \(asked by schedule\.lua\)"):
            await q.schedule("x", delay="1h", queue="orders")
    redis_client.flushall()


def test_a_key_of_no_queue_is_told_by_its_name(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.set("delayq:queues", "somebody else's")
    with DelayQ(redis_url) as q, pytest.raises(BackendDamaged, match="SADD delayq:queues"):
        q.schedule("x")
    redis_client.flushall()


def test_a_worker_is_told_the_queue(redis_url: str, redis_client: redis.Redis) -> None:
    with closing(Connector(redis_url)) as connector:
        driver = RedisStreams(connector, Options())
        redis_client.set("delayq:{orders}:scheduled", "somebody else's")
        with pytest.raises(BackendDamaged, match=r"the queue orders \(asked by promote\.lua\)"):
            driver.promote("orders")
        redis_client.flushall()
        with closing(driver.consumer("dq:host:1:a1", ["mails", "orders"])) as consumer:
            redis_client.delete("delayq:{orders}:stream")
            redis_client.set("delayq:{orders}:stream", "somebody else's")
            [error] = consumer.fetch((), 1).errors
            redis_client.flushall()
    redis_client.flushall()
    assert "A key of the queue orders on Redis" in str(error)


def test_a_queue_answers_with_all_that_is_in_force(redis_url: str) -> None:
    with DelayQ(redis_url) as q:
        q.queue_set("orders", lease="5s")
        view = q.queue_set("orders", shards=4)
        assert (view.queue, view.shards, view.lease_ms) == ("orders", 4, 5_000)


async def test_a_text_is_one_id_to_forget(redis_url: str) -> None:
    ids = ("a", "b", "ab")
    with DelayQ(redis_url) as q:
        for job_id in ids:
            q.schedule("x", id=job_id, delay="1h")
        assert q.forget("ab") == ["refused"]
        assert q.forget("nobody") == ["unknown"]
    async with AsyncDelayQ(redis_url) as aq:
        assert await aq.forget("ab") == ["refused"]
        assert await aq.forget(["a", "nobody"]) == ["refused", "unknown"]


# -- the manager that the application has set ------------------------------------------------------------------------


@pytest.fixture
def other_url(redis_url: str) -> str:
    """Another database of the same server, which the environment names."""
    return f"{redis_url.rsplit('/', 1)[0]}/9"


@pytest.fixture
def unset() -> Iterator[None]:
    """No manager is set, before and after."""
    set_manager(None)
    yield
    set_manager(None)


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("environment", [True, False])
@pytest.mark.redis_prefix("shop")
async def test_clients_follow_the_manager_that_is_set(
    redis_url: str, other_url: str, environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if environment:
        monkeypatch.setenv("DELAYQ_URL", other_url)
    else:
        monkeypatch.setenv("DELAYQ_EMBEDDED", "never")
    manager = make_manager(Settings(url=redis_url, prefix="shop", queue="orders"))
    manager.route("mail.*", queue="mails")
    set_manager(manager)
    dispatch("order.close", delay="15m", id="order-42")
    with DelayQ() as q:
        assert q.cancel("order-42") == "cancelled"
        assert q.schedule("mail.send", delay="1h", id="m").queue == "mails"
    async with AsyncDelayQ() as aq:
        assert (await aq.schedule("x", delay="1h", id="a")).queue == "orders"
        assert await aq.cancel("a") == "cancelled"
    with DelayQ(queue="vip") as q:
        assert (q.options.prefix, q.options.queue) == ("shop", "vip")
    with DelayQ(prefix="other") as q:
        assert (str(q.connector.endpoint), q.options.prefix) == (redis_url, "other")
    manager.close()


@pytest.mark.usefixtures("unset")
def test_an_explicit_address_goes_before_the_manager(redis_url: str, other_url: str) -> None:
    set_manager(make_manager(Settings(url=redis_url)))
    with DelayQ(other_url) as q:
        assert str(q.connector.endpoint) == other_url
    with DelayQ(settings=Settings(url=other_url)) as q:
        assert str(q.connector.endpoint) == other_url


@pytest.mark.usefixtures("unset")
def test_a_manager_that_was_only_made_does_not_count(
    redis_url: str, other_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYQ_URL", redis_url)
    current_manager()
    monkeypatch.setenv("DELAYQ_URL", other_url)
    with DelayQ() as q:
        assert str(q.connector.endpoint) == other_url


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("client", [DelayQ, AsyncDelayQ])
def test_a_manager_without_a_redis_is_refused(client: Callable[[], object], redis_url: str, tmp_path: Path) -> None:
    lake = {"driver": "database", "url": f"sqlite:///{tmp_path}/jobs.db"}
    set_manager(make_manager(Settings(url=redis_url, connection="lake", connections={"lake": lake})))
    with pytest.raises(ConfigError, match="connection 'lake' is no Redis but has the driver 'database'"):
        client()


@pytest.mark.usefixtures("unset")
def test_the_manager_of_a_command_counts_where_it_is_a_redis(
    redis_url: str, other_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELAYQ_URL", other_url)
    replace_manager(make_manager(Settings(), redis_url))
    with DelayQ() as q:
        assert str(q.connector.endpoint) == redis_url
    set_manager(None)
    replace_manager(make_manager(Settings(connection="null")))
    with DelayQ() as q:
        assert str(q.connector.endpoint) == other_url
