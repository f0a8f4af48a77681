"""A name that is scheduled by a client has what its class or function declares, where the call says nothing itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from delayq import (
    AsyncDelayQ,
    Debounce,
    DelayQ,
    InvalidInput,
    Job,
    JobInfo,
    Settings,
    Unique,
    handles,
    job,
    make_manager,
)
from delayq.core.errors import InvalidPayload
from delayq.core.spec import JobSpec
from delayq.jobs.current import using_manager
from delayq.jobs.registry import Registry, using
from delayq.testing import faking


@pytest.fixture(autouse=True)
def registry() -> Iterator[Registry]:
    with using(Registry()) as registry:
        yield registry


@pytest.fixture
def q(redis_url: str, registry: Registry) -> Iterator[DelayQ]:
    with DelayQ(redis_url) as q:
        yield q


def declare() -> Any:
    """Jobs, declared after the client was made, as in a program that makes its client first."""

    class CloseOrder(
        Job, name="order.close", queue="orders", delay="15m", deadline="1h", unique=Unique(key=["order_id"])
    ):
        order_id: int

        def handle(self) -> None: ...

    @job("report.make", queue="reports", tags=["slow"], retry_until="2h")
    def make(number: int) -> None: ...

    return CloseOrder


def info(q: DelayQ, job_id: str, queue: str) -> JobInfo:
    found = q.get(job_id, queue=queue)
    assert found is not None
    return found


def test_a_registered_name_has_the_declared_options(q: DelayQ) -> None:
    declare()
    ref = q.schedule("order.close", {"order_id": 42}, id="order-42")
    assert (ref.queue, ref.state) == ("orders", "scheduled")
    envelope = info(q, "order-42", "orders").envelope
    assert envelope is not None
    assert abs((envelope.deadline_ms or 0) - (ref.due_ms or 0) - 3_600_000) < 5_000, "one clock reading apart"
    again = q.schedule("order.close", {"order_id": 42})
    assert (again.id, again.outcome) == ("order-42", "kept")
    assert q.schedule("order.close", {"order_id": 43}).outcome == "created"
    made = info(q, q.schedule("report.make", {"number": 1}).id, "reports").envelope
    assert made is not None
    assert made.tags == ["slow"]
    assert made.retry_until_ms is not None


def test_it_is_the_job_that_a_dispatch_sends(q: DelayQ, redis_url: str) -> None:
    """The same lock and the same queue: what one of them sent, the other one keeps."""
    close_order = declare()
    manager = make_manager(Settings(url=redis_url))
    with using_manager(manager):
        first = close_order(order_id=7).dispatch()
        again = q.schedule("order.close", {"order_id": 7})
        assert (again.id, again.queue, again.outcome) == (first.id, "orders", "kept")
        assert again.due_ms == first.due_ms
    manager.close()


def test_what_the_call_says_goes_first(q: DelayQ) -> None:
    declare()
    ref = q.schedule("order.close", {"order_id": 1}, queue="vip", delay="1m", deadline="5m", unique="mine")
    envelope = info(q, ref.id, "vip").envelope
    assert envelope is not None
    assert abs((envelope.deadline_ms or 0) - (ref.due_ms or 0) - 300_000) < 5_000, "one clock reading apart"
    assert q.schedule("other", unique="mine", queue="vip").outcome == "kept"
    tagged = info(q, q.schedule("report.make", {"number": 1}, tags=["now"]).id, "reports").envelope
    assert tagged is not None
    assert tagged.tags == ["slow", "now"]
    assert q.schedule("order.close", {"order_id": 2}, at="2031-01-01T00:00:00Z").due_ms == 1_924_992_000_000


def test_schedule_many_and_async_alike(q: DelayQ, redis_url: str) -> None:
    declare()
    items: list[Any] = [
        {"name": "order.close", "data": {"order_id": 1}},
        JobSpec(name="report.make"),
        {"name": "plain"},
    ]
    assert [ref.queue for ref in q.schedule_many(items)] == ["orders", "reports", "default"]

    async def aschedule() -> list[str]:
        async with AsyncDelayQ(redis_url) as aq:
            one = await aq.schedule("order.close", {"order_id": 5})
            return [one.queue, *(ref.queue for ref in await aq.schedule_many(items))]

    assert asyncio.run(aschedule()) == ["orders", "orders", "reports", "default"]


def test_keys_and_tags_that_are_functions_are_given_the_job(q: DelayQ) -> None:
    class Invoice(
        Job, name="invoice", unique=Unique(key=lambda one: f"n{one.number}"), tags=lambda one: [f"t{one.number}"]
    ):
        number: int

        def handle(self) -> None: ...

    first = q.schedule("invoice", {"number": 3}, delay="1h")
    assert q.schedule("invoice", {"number": 3}, delay="1h").id == first.id
    envelope = info(q, first.id, "default").envelope
    assert envelope is not None
    assert envelope.tags == ["t3"]
    with pytest.raises(InvalidPayload):
        q.schedule("invoice", {"nmber": 3})


def test_a_debounced_name_is_debounced_and_takes_no_id(q: DelayQ) -> None:
    @job("search.index", debounce=Debounce("30s", key=["document"]))
    def index(document: str) -> None: ...

    first = q.schedule("search.index", {"document": "a"})
    assert first.state == "scheduled"
    second = q.schedule("search.index", {"document": "a"})
    assert second.instead_of == first.id
    with pytest.raises(InvalidInput, match="debounced"):
        q.schedule("search.index", {"document": "a"}, id="mine")


def test_methods_of_a_class_are_names_too(q: DelayQ) -> None:
    @handles("mailer", queue="mail")
    class Mailer:
        def welcome(self, context: object, data: object) -> None: ...

    assert q.schedule("mailer@welcome").queue == "mail"


def test_a_name_that_says_little_keeps_the_queue_of_the_client(redis_url: str) -> None:
    @job("plain", tries=3)
    def plain() -> None: ...

    with DelayQ(redis_url, queue="mine") as q:
        assert q.schedule("plain").queue == "mine"
        declare()
        assert q.schedule("report.make", {"number": 1}).queue == "reports"


def test_the_fake_sees_the_declared_queue(q: DelayQ) -> None:
    declare()
    with faking() as fake:
        q.schedule("order.close", {"order_id": 1})
        fake.assert_pushed_on("orders", "order.close")
