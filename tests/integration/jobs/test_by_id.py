"""A job is asked for where it is: by its answer, its class or its function; an id alone says where it was found."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import create_engine

from delayq import (
    AsyncDelayQ,
    ConfigError,
    DelayQ,
    FoundElsewhere,
    InvalidInput,
    Job,
    JobHasFailed,
    JobInfo,
    JobNotFound,
    NotAllSearched,
    Settings,
    dispatch,
    job,
    make_manager,
)
from delayq.core.errors import InvalidName
from delayq.core.states import State
from delayq.drivers.database.engine import Database
from delayq.drivers.database.schema import migrate
from delayq.drivers.database.tables import tables
from delayq.drivers.within import within
from delayq.jobs.current import using_manager
from delayq.jobs.registry import Registry, using
from delayq.manager import Manager
from delayq.redis import verbs
from delayq.testing import travelling


@pytest.fixture
def q(redis_url: str) -> Iterator[DelayQ]:
    with DelayQ(redis_url) as q:
        yield q


@pytest.fixture(autouse=True)
def manager(redis_url: str) -> Iterator[Manager]:
    manager = make_manager(Settings(url=redis_url))
    with using(Registry()), using_manager(manager):
        yield manager
    manager.close()


def close_order() -> Any:
    class CloseOrder(Job, name="order.close", queue="orders", retention="1h"):
        order_id: int

        def handle(self) -> int:
            return self.order_id

    return CloseOrder


def test_a_cancel_without_its_queue_says_where_the_job_is(q: DelayQ) -> None:
    q.schedule("order.close", delay="15m", id="order-42", queue="orders")
    for verb in (
        lambda: q.cancel("order-42"),
        lambda: q.get("order-42"),
        lambda: q.run_now("order-42"),
        lambda: q.reschedule("order-42", delay="1h"),
        lambda: q.retry("order-42"),
        lambda: q.forget(["order-42"]),
    ):
        with pytest.raises(FoundElsewhere) as raised:
            verb()
        assert (raised.value.job_id, raised.value.queues, raised.value.exit_code) == ("order-42", ("orders",), 3)
        assert 'queue="orders"' in str(raised.value)
    with pytest.raises(FoundElsewhere) as some:
        q.forget(["nobody", "order-42"])
    assert some.value.done == ("unknown", "unknown")
    info = q.get("order-42", queue="orders")
    assert info is not None
    assert info.state is State.SCHEDULED, "nothing was done to it"
    assert q.cancel("order-42", queue="default") == "unknown", "a queue that is named is the one that is meant"
    assert q.cancel("order-42", queue="orders") == "cancelled"
    assert q.cancel("order-42") == "unknown"
    assert q.get("order-42") is None
    with pytest.raises(JobNotFound) as plain:
        q.run_now("order-42")
    assert type(plain.value) is JobNotFound


def test_ids_may_come_from_an_iterator(q: DelayQ) -> None:
    for job_id in ("a", "b"):
        q.schedule("n", id=job_id, delay="1h")
        q.archive(job_id)
    assert q.forget((job_id for job_id in ("a", "b")), queue="default") == ["forgotten", "forgotten"]


@pytest.mark.parametrize("given", [b"a", bytearray(b"a")])
async def test_bytes_are_no_id(redis_url: str, q: DelayQ, given: Any) -> None:
    with pytest.raises(InvalidName, match="is bytes, and the id of a job is text"):
        q.forget(given)
    with pytest.raises(InvalidName, match="b'a'"):
        q.forget([b"a"])  # type: ignore[list-item]
    async with AsyncDelayQ(redis_url) as aq:
        with pytest.raises(InvalidName, match="is bytes, and the id of a job is text"):
            await aq.forget(given)


async def test_a_search_that_ends_early_says_so(redis_url: str, q: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "MOST_SEARCHED", 2)
    for queue in ("a", "b", "c", "d"):
        q.schedule("n", id=f"in-{queue}", queue=queue, delay="1h")
    for verb in (
        lambda: q.cancel("in-d"),
        lambda: q.get("in-d"),
        lambda: q.run_now("in-d"),
        lambda: q.retry("in-d"),
        lambda: q.forget(["in-d"]),
    ):
        with pytest.raises(NotAllSearched, match="2 other queues were not searched") as raised:
            verb()
        assert (raised.value.job_id, raised.value.queues, raised.value.exit_code) == ("in-d", (), 3)
        assert 'queue="..."' in raised.value.hint
    with pytest.raises(FoundElsewhere, match="'a'") as found:
        q.cancel("in-a")
    assert found.value.queues == ("a",)
    assert q.cancel("in-d", queue="default") == "unknown"
    async with AsyncDelayQ(redis_url) as aq:
        with pytest.raises(NotAllSearched):
            await aq.cancel("in-d")
    monkeypatch.setattr(verbs, "MOST_SEARCHED", 4)
    assert q.cancel("nobody") == "unknown"


async def test_the_advice_of_a_class_is_a_call_that_works(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    close = close_order()
    close(order_id=1).dispatch(delay="15m", id="vip-1", queue="vip")
    advised = "DelayQ().{}('vip-1', queue=\"vip\")"
    for verb, name in ((close.cancel, "cancel"), (close.find, "get")):
        with pytest.raises(FoundElsewhere) as raised:
            verb("vip-1")
        assert advised.format(name) in raised.value.hint
        assert "--queue" not in raised.value.hint
    for awaited, name in ((close.acancel, "cancel"), (close.afind, "get")):
        with pytest.raises(FoundElsewhere) as raised:
            await awaited("vip-1")
        assert advised.format(name) in raised.value.hint
    monkeypatch.setattr(verbs, "MOST_SEARCHED", 0)
    with pytest.raises(NotAllSearched) as left:
        close.cancel("vip-1")
    assert "DelayQ().cancel('vip-1', queue=\"...\")" in left.value.hint
    await manager.aclose()


def test_a_job_in_a_shard_of_another_queue_is_found(q: DelayQ) -> None:
    q.queue_set("orders", shards=3)
    q.schedule_many([{"name": "n", "id": f"o{n}", "queue": "orders", "delay": "1h"} for n in range(12)])
    q.schedule("n", id="o1", queue="mails", delay="1h")
    with pytest.raises(FoundElsewhere) as raised:
        q.cancel("o1")
    assert set(raised.value.queues) == {"orders", "mails"}
    with pytest.raises(FoundElsewhere, match="'orders'"):
        q.cancel("o7")


async def test_the_same_awaited(redis_url: str, q: DelayQ) -> None:
    q.schedule("order.close", delay="15m", id="order-42", queue="orders")
    async with AsyncDelayQ(redis_url) as aq:
        for verb in (aq.cancel, aq.get, aq.run_now, aq.retry):
            with pytest.raises(FoundElsewhere):
                await verb("order-42")


def test_a_named_queue_and_a_job_that_is_found_cost_no_command_more(q: DelayQ) -> None:
    q.schedule("order.close", delay="15m", id="a")
    q.schedule("order.close", delay="15m", id="b")
    q.schedule("order.close", delay="15m", id="c", queue="orders")
    redis = q.connector.commands()

    def cost(job_id: str, queue: str | None) -> int:
        before = redis.info("commandstats")
        with contextlib.suppress(FoundElsewhere):
            q.cancel(job_id, queue=queue)
        after = redis.info("commandstats")
        names = ("cmdstat_smembers", "cmdstat_hexists")
        return sum(after.get(name, {}).get("calls", 0) - before.get(name, {}).get("calls", 0) for name in names)

    assert cost("a", None) == 0
    assert cost("nobody", "default") == 0
    searched = cost("c", None)
    assert searched > 0
    assert searched <= 4, "SMEMBERS, and one HEXISTS for each other shard"


def test_an_answer_knows_its_queue(q: DelayQ) -> None:
    ref = q.schedule("order.close", delay="15m", id="order-42", queue="orders")
    info = ref.refresh()
    assert isinstance(info, JobInfo)
    assert ref.reschedule(delay="1h").outcome == "rescheduled"
    assert ref.run_now().state is State.READY
    assert ref.reschedule(delay="1h").cancel() == "cancelled"
    assert ref.cancel() == "unknown"
    assert ref.refresh() is None
    [many] = q.schedule_many([{"name": "n", "queue": "mails", "delay": "1h"}])
    assert many.cancel() == "cancelled"


async def test_an_answer_knows_its_queue_awaited(redis_url: str, q: DelayQ) -> None:
    async with AsyncDelayQ(redis_url) as aq:
        ref = await aq.schedule("order.close", delay="15m", id="order-42", queue="orders")
        assert (await ref.arefresh()) is not None
        assert (await ref.arun_now()).state is State.READY
        assert (await ref.areschedule(delay="1h")).state is State.SCHEDULED
        assert await ref.acancel() == "cancelled"
        assert await ref.await_("1s") is None
        with pytest.raises(JobNotFound, match="retention"):
            await ref.aresult()


def test_a_class_and_a_function_know_their_queue(manager: Manager) -> None:
    close = close_order()

    @job("mail.send", queue="mails")
    def send(to: str) -> None: ...

    close(order_id=42).dispatch(delay="15m", id="order-42")
    send.job(to="ann").dispatch(delay="15m", id="mail-1")
    assert close.find("order-42").queue == "orders"
    sent = send.find("mail-1")
    assert sent is not None
    assert sent.queue == "mails"
    assert close.find("nobody") is None
    assert send.cancel("mail-1") == "cancelled"
    assert close.cancel("order-42") == "cancelled"
    assert close.cancel("order-42") == "unknown"
    close(order_id=43).on_queue("vip").delay("15m").dispatch(id="order-43")
    with pytest.raises(FoundElsewhere, match="'vip'"):
        close.cancel("order-43")
    with pytest.raises(FoundElsewhere, match="'vip'"):
        close.find("order-43")


async def test_a_class_knows_its_queue_awaited(manager: Manager) -> None:
    close = close_order()
    await close(order_id=42).adispatch(delay="15m", id="order-42")
    assert (await close.afind("order-42")).queue == "orders"
    assert await close.acancel("order-42") == "cancelled"
    assert await close.afind("order-42") is None
    await manager.aclose()


def test_a_route_is_considered(manager: Manager) -> None:
    @job("mail.send")
    def send(to: str) -> None: ...

    manager.route("mail.*", queue="routed")
    ref = send.job(to="ann").dispatch(delay="15m", id="mail-1")
    assert ref.queue == "routed"
    assert send.cancel("mail-1") == "cancelled"


def test_waiting_and_results(manager: Manager) -> None:
    close = close_order()

    class Fails(Job, tries=1):
        def handle(self) -> None:
            raise ValueError("no such order")

    with travelling() as travel:
        ref, bad = close(order_id=42).dispatch(), Fails().dispatch()
        with pytest.raises(TimeoutError, match="has not ended within 30ms"):
            ref.wait("30ms")
        with pytest.raises(TimeoutError):
            ref.result()
        travel("0s")
        done = ref.wait("20s")
        assert done is not None
        assert (done.state, ref.result(), ref.result("20s")) == (State.COMPLETED, 42, 42)
        assert asyncio.run(ref.aresult()) == 42
        with pytest.raises(JobHasFailed, match="no such order"):
            bad.result()


def test_a_job_that_nothing_keeps_says_so(manager: Manager) -> None:
    close = close_order()
    ref = close(order_id=1).on_connection("null").dispatch()
    with pytest.raises(ConfigError, match="no backend keeps the job"):
        ref.cancel()
    ran = dispatch("order.close", {"order_id": 1}, connection="sync")
    with pytest.raises(ConfigError, match="no backend keeps the job"):
        ran.refresh()

    @job("nowhere", connection="null")
    def nowhere() -> None: ...

    with pytest.raises(ConfigError, match="'null'"):
        nowhere.cancel("x")


def test_a_class_asks_a_database_too(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with contextlib.closing(Database(url)) as database:
        migrate(database, tables())
    manager = make_manager(Settings(connections={"safe": {"driver": "database", "url": url}}))

    @job("mail.send", queue="mails", connection="safe")
    def send(to: str) -> None: ...

    with using_manager(manager):
        send.job(to="ann").dispatch(delay="15m", id="mail-1")
        found = send.find("mail-1")
        assert found is not None
        assert (found.queue, found.state, found.data) == ("mails", State.SCHEDULED, {"to": "ann"})
        assert asyncio.run(send.acancel("mail-1")) == "cancelled"
        assert (send.cancel("mail-1"), asyncio.run(send.afind("mail-1"))) == ("unknown", None)
        with pytest.raises(InvalidInput, match="cannot ask a running job to stop"):
            send.cancel("mail-1", running=True)
        engine = create_engine(url)
        with engine.begin() as connection, within(connection):
            ref = send.job(to="bob").dispatch(delay="15m")
            with pytest.raises(InvalidInput, match="inside a transaction"):
                ref.cancel()
        assert ref.cancel() == "cancelled"
        engine.dispose()
    manager.close()


def test_the_home_of_an_answer_counts_for_nothing(q: DelayQ) -> None:
    ref = q.schedule("order.close", delay="15m", id="order-42")
    with DelayQ(q.connector.endpoint.url) as other:
        again = other.schedule("order.close", delay="15m", id="order-42")
    assert again.home is not ref.home
    assert msgspec.structs.replace(ref, outcome=again.outcome) == again
