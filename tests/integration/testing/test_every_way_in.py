"""Under a fake or a virtual clock nothing of this process reaches the Redis of its settings, whichever way it takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from delayq import (
    AsyncDelayQ,
    ConfigError,
    Conflict,
    DelayQ,
    Job,
    JobRef,
    Manager,
    Settings,
    batch,
    chain,
    current_manager,
    dispatch,
    make_manager,
    set_manager,
)
from delayq.app.clients import open_client
from delayq.core.states import State
from delayq.jobs.current import using_manager
from delayq.redis.connect import Connector
from delayq.testing import Fake, Travel, faking, travelling
from delayq.testing.private_server import empty, private_server

EARLY: dict[str, Any] = {}
"""Clients as a module has them that makes them when it is imported."""


@pytest.fixture(scope="module")
def server_of_all() -> Iterator[Connector]:
    with private_server() as server:
        yield server


@pytest.fixture(autouse=True)
def shared(server_of_all: Connector, manager: Manager, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connector]:
    """The Redis of the settings, which must stay empty; clients and a manager were made before the test began."""
    empty(server_of_all)
    url = server_of_all.endpoint.url
    monkeypatch.setenv("DELAYQ_URL", url)
    early = make_manager(Settings(url=url))
    EARLY.update(plain=DelayQ(), awaited=AsyncDelayQ(), manager=early, url=url)
    with using_manager(early):
        early.connection()
        yield server_of_all
    assert server_of_all.commands().dbsize() == 0
    EARLY["plain"].close()
    early.close()


def close_order() -> Any:
    class CloseOrder(Job, name="order.close"):
        order_id: int

        def handle(self) -> int:
            return self.order_id

    return CloseOrder


# The fixtures are asked for after `shared`, as in a suite whose modules were imported long before.


@pytest.fixture
def fake(shared: Connector, delayq_fake: Fake) -> Fake:
    return delayq_fake


@pytest.fixture
def travel(shared: Connector, delayq_travel: Travel) -> Travel:
    return delayq_travel


def schedule_everywhere() -> list[str]:
    """A job by each way in that blocks; their ids."""
    close = close_order()
    data = {"order_id": 1}
    with DelayQ() as q:
        q.schedule("order.close", data, delay="15m", id="new")
        q.schedule_many([{"name": "order.close", "data": data, "delay": "15m", "id": "many"}])
    with DelayQ(prefix="shop") as other:
        other.schedule("order.close", data, delay="15m", id="prefixed")
    EARLY["plain"].schedule("order.close", data, delay="15m", id="early", deadline="1h")
    with open_client(Settings()) as client:
        client.schedule("order.close", data, delay="15m", id="command-line")
    close(order_id=1).dispatch(delay="15m", id="dispatched")
    with closing(make_manager(Settings())) as fresh, using_manager(fresh):
        close(order_id=1).dispatch(delay="15m", id="fresh-manager")
    with using_manager(EARLY["manager"]):
        close(order_id=1).dispatch(delay="15m", id="early-manager")
    return ["new", "many", "prefixed", "early", "command-line", "dispatched", "fresh-manager", "early-manager"]


def test_the_fake_takes_jobs_from_every_way_in(fake: Fake) -> None:
    ids = schedule_everywhere()
    assert [one.id for one in fake.pushed("order.close")] == ids
    fake.assert_pushed_with_delay("order.close", "15m", lambda one: one.id == "early")


async def test_the_fake_takes_jobs_from_asyncio(fake: Fake) -> None:
    close = close_order()
    async with AsyncDelayQ() as q:
        await q.schedule("order.close", {"order_id": 1}, id="new")
        await q.schedule_many([{"name": "order.close", "data": {"order_id": 1}, "id": "many"}])
    await EARLY["awaited"].schedule("order.close", {"order_id": 1}, id="early")
    await close(order_id=1).adispatch(id="dispatched")
    assert [one.id for one in fake.pushed()] == ["new", "many", "early", "dispatched"]


def test_the_fake_refuses_what_needs_a_queue_in_one_sentence(fake: Fake) -> None:
    q = EARLY["plain"]
    for call, named in (
        (lambda: q.cancel("order-42"), "DelayQ.cancel"),
        (lambda: q.get("order-42"), "DelayQ.get"),
        (q.clear, "DelayQ.clear"),
        (q.batches.list, "Batches.list"),
        (q.locks.all, "LockDesk.all"),
        (q.limits.all, "LimitDesk.all"),
        (lambda: DelayQ().stats(), "DelayQ.stats"),
        (EARLY["manager"].connection().batches.list, "a list of batches"),
        (EARLY["plain"].connector.subscriber, "Connector.subscriber"),
    ):
        with pytest.raises(RuntimeError, match=rf"^delayq's fake .* answer {named}.*Use the fixture delayq_travel"):
            call()


async def test_the_fake_refuses_what_needs_a_queue_awaited(fake: Fake) -> None:
    with pytest.raises(RuntimeError, match=r"answer AsyncDelayQ\.cancel .*Use the fixture delayq_travel"):
        await EARLY["awaited"].cancel("order-42")


def test_a_conflict_is_raised_as_by_a_queue(fake: Fake) -> None:
    q = EARLY["plain"]
    q.schedule("order.close", id="order-42")
    with pytest.raises(Conflict):
        q.schedule("order.close", id="order-42", on_conflict="error")
    assert [one.outcome for one in q.schedule_many([{"name": "order.close", "id": "order-42"}])] == ["kept"]


def test_the_virtual_clock_has_jobs_from_every_way_in(travel: Travel) -> None:
    travel("2h")  # a job that counts from the real time would be due at once
    ids = schedule_everywhere()
    assert travel("14m") == []
    assert sorted(attempt.id for attempt in travel("1m")) == sorted(ids)
    assert {attempt.ended for attempt in travel.attempts} == {"done"}


def test_the_virtual_clock_answers_for_every_client(travel: Travel) -> None:
    q = EARLY["plain"]
    q.schedule("order.close", {"order_id": 1}, delay="15m", id="order-42")
    assert travel.client.get("order-42").state is State.SCHEDULED  # type: ignore[union-attr]  # it is there
    assert q.get("order-42").due_ms == travel.now_ms + 900_000
    assert (q.batches.list(), list(q.locks.all())) == ([], [])
    assert q.cancel("order-42") == "cancelled"
    assert travel("15m") == []


async def test_the_virtual_clock_awaited(travel: Travel) -> None:
    close_order()
    await EARLY["awaited"].schedule("order.close", {"order_id": 1}, delay="15m", id="order-42")
    assert (await travel.aclient.get("order-42")).state is State.SCHEDULED  # type: ignore[union-attr]  # it is there
    async with AsyncDelayQ() as q:
        assert await q.cancel("order-42") == "cancelled"
    assert await travel.atravel("15m") == []


def test_what_is_not_faked_is_really_sent(travel: Travel) -> None:
    """Here the real one is the private server of the journey."""
    close_order()
    with faking(only=("mail.*",)) as fake:
        q = DelayQ()
        q.schedule_many([{"name": "mail.send", "id": "m"}, {"name": "order.close", "data": {"order_id": 1}, "id": "o"}])
        assert [one.id for one in fake.pushed()] == ["m"]
        assert q.get("o") is not None
    assert [attempt.id for attempt in travel("0s")] == ["o"]


def test_a_full_fake_inside_a_journey_lets_the_journey_go_on(travel: Travel) -> None:
    with faking() as fake:
        DelayQ().schedule("order.close", id="o")
        assert travel("1h") == []
        fake.assert_count(1)


def test_afterwards_everything_is_as_before(shared: Connector) -> None:
    with faking():
        EARLY["plain"].schedule("order.close")
    EARLY["plain"].schedule("order.close", id="real")
    assert EARLY["plain"].get("real") is not None
    empty(shared)


def test_chains_and_batches(fake: Fake) -> None:
    close = close_order()

    class Tell(Job, name="tell"):
        def handle(self) -> None: ...

    chain(close(order_id=1), Tell(), batch([Tell(), Tell()])).catch(Tell()).dispatch()
    fake.assert_chained([close, Tell, [Tell, Tell]])
    fake.assert_chained([close(order_id=1), "tell", ["te*", Tell]], lambda one: one.data == {"order_id": 1})
    with pytest.raises(AssertionError, match=r"No chain \[order.close, tell\] was pushed. Pushed:"):
        fake.assert_chained([close, Tell])
    with pytest.raises(AssertionError, match=r"1 of order\.close was pushed with a chain"):
        fake.assert_not_chained(close)
    close(order_id=2).dispatch()
    fake.assert_not_chained(close, lambda job: job.order_id == 2)
    fake.assert_nothing_batched()
    assert [one.name for one in fake.pushed(close)[0].catch] == ["tell"]

    info = batch([close(order_id=3), [Tell(), close(order_id=4)]], name="both", then=Tell()).dispatch()
    assert (info.name, info.total, info.state) == ("both", 3, "running")
    fake.assert_batch_count(1)
    fake.assert_batched([close, [Tell, close]])
    fake.assert_batched([close(order_id=3), [Tell, close(order_id=4)]], lambda one: one.name == "both")
    [one] = fake.batched()
    assert [job.name for job in one.callbacks["then"]] == ["tell"]
    assert current_manager().batches().get(info.id) == info
    with pytest.raises(AssertionError, match=r"No batch of \[tell\] was dispatched. Pushed:(?s:.*)batch 'both'"):
        fake.assert_batched([Tell])
    with pytest.raises(AssertionError, match="1 batch was dispatched, not 0"):
        fake.assert_nothing_batched()
    fake.clear()
    fake.assert_nothing_batched()


async def test_batches_awaited(fake: Fake) -> None:
    info = await batch([close_order()(order_id=1)]).adispatch()
    fake.assert_batched(["order.close"], lambda one: one.id == info.id)


def test_the_manager_of_the_process_is_covered_too(fake: Fake) -> None:
    early = EARLY["manager"]
    set_manager(early)
    try:
        close_order()(order_id=1).dispatch()
    finally:
        set_manager(None)
    fake.assert_count(1)


# -- answers that outlive the test's block -----------------------------------------------------------------------------


def answers_inside() -> list[JobRef]:
    """Answers of a client that schedules, of one that schedules many, and of a dispatch."""
    plain: DelayQ = EARLY["plain"]
    refs = [plain.schedule("order.close", {"order_id": 1}, delay="1h", id="a")]
    refs += plain.schedule_many([{"name": "order.close", "data": {"order_id": 1}, "delay": "1h", "id": "b"}])
    refs.append(dispatch("order.close", {"order_id": 1}, delay="1h", id="c", queue="default"))
    return refs


async def refuse_all(refs: list[JobRef], shared: Connector) -> None:
    """Schedule real jobs with the same ids; the answers must refuse, and the jobs must stay."""
    plain: DelayQ = EARLY["plain"]
    for job_id in "abcd":
        plain.schedule("order.close", delay="1h", id=job_id)
    for ref in refs:
        for verb in (
            ref.cancel,
            ref.refresh,
            ref.run_now,
            partial(ref.reschedule, delay="2h"),
            partial(ref.wait, "1s"),
        ):
            with pytest.raises(ConfigError, match=r"clock that has ended|cannot be asked about"):
                verb()
        for awaited in (ref.acancel, ref.arefresh, ref.arun_now, ref.aresult):
            with pytest.raises(ConfigError, match=r"clock that has ended|cannot be asked about"):
                await awaited()
    assert {info.id for info in plain.iter_jobs("scheduled", queue="default")} == set("abcd")
    assert plain.schedule("order.close", delay="1h", id="f").cancel() == "cancelled", "answers made afterwards work"
    empty(shared)


async def test_answers_of_a_journey_refuse_after_it(shared: Connector) -> None:
    close_order()
    with travelling() as travel:
        refs = answers_inside()
        async with AsyncDelayQ() as q:
            refs.append(await q.schedule("order.close", {"order_id": 1}, delay="1h", id="d"))
        refs.append(refs[0].reschedule(delay="30m"))
        assert refs[1].cancel() == "cancelled"
        travel("0s")
    await refuse_all(refs, shared)


async def test_answers_of_a_fake_refuse_after_it(shared: Connector) -> None:
    close_order()
    with faking():
        refs = answers_inside()
        async with AsyncDelayQ() as q:
            refs.append(await q.schedule("order.close", {"order_id": 1}, delay="1h", id="d"))
    await refuse_all(refs, shared)
