"""Jobs whose models are not saved yet, or are gone when a real worker wants them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest

from delayq import Job, JobModelMissing, job, listener
from delayq.contrib.sqlalchemy_models import SqlAlchemyModels
from delayq.core.errors import InvalidPayload, ModelMissing
from delayq.core.outcome import GiveUp
from delayq.core.states import State
from delayq.jobs.references.reference import Reference
from delayq.testing import run_job
from tests.support.shop_tables import Order, Shop
from tests.support.station import Station
from tests.support.tape import Tape

pytestmark = pytest.mark.usefixtures("manager")


@pytest.mark.parametrize("model", ["new", "pending", "deleted"])
def test_an_unsaved_model_is_refused_by_field(
    station: Station, shop: Shop, models: SqlAlchemyModels, model: str
) -> None:
    class Close(Job, name="close"):
        orders: list[Order]

        def handle(self) -> None: ...

    order = Order(id=1)
    with shop.session() as session:
        if model != "new":
            session.add(order)
        if model == "deleted":
            session.flush()
            session.delete(order)
            session.flush()
        with pytest.raises(InvalidPayload, match="The field 'orders' of 'close' holds a Order that is not saved"):
            Close(orders=[order]).dispatch()


def test_a_flushed_model_has_a_key(station: Station, shop: Shop, models: SqlAlchemyModels) -> None:
    class Close(Job, name="close"):
        order: Order

        def handle(self) -> None: ...

    with shop.session() as session:
        order = Order()
        session.add(order)
        session.flush()
        ref = Close(order=order).dispatch()
        assert station.job(ref.id).data["order"]["key"] == order.id


def closing(tape: Tape[Any], order: Order, policy: str | None = None) -> dict[str, Callable[[], Any]]:
    """Jobs of every kind that want an order and write down that they ran; each makes one when called."""

    class Close(Job, name="class", on_missing=policy):
        order: Order

        def handle(self) -> None:
            tape.append("ran")

        def failed(self, error: BaseException) -> None:
            tape.append("failed")

    class Later(Job, name="async", on_missing=policy):
        order: Order

        async def handle(self) -> None:
            tape.append("ran")

    class ByField(Job, name="field", on_missing="fail"):
        order: Annotated[Order, Reference(on_missing="discard")]

        def handle(self) -> None:
            tape.append("ran")

    @job("function", on_missing=policy)
    def close(order: Order) -> None:
        tape.append("ran")

    return {
        "class": lambda: Close(order=order),
        "async": lambda: Later(order=order),
        "field": lambda: ByField(order=order),
        "function": lambda: close.job(order),
    }


@pytest.mark.parametrize("kind", ["class", "async", "function"])
def test_a_missing_model_fails_the_job_at_once(
    station: Station, shop: Shop, models: SqlAlchemyModels, kind: str
) -> None:
    tape, heard = station.tape(), station.tape()
    listener(JobModelMissing)(heard.append)
    order = Order(id=42)
    shop.save(order)
    ref = closing(tape, order)[kind]().dispatch(tries=5)
    shop.drop(order)
    station.drain()
    info = station.job(ref.id)
    assert (info.state, info.attempts, list(tape)) == (State.FAILED, 1, [])
    assert info.failure is not None
    assert (info.failure.type, info.failure.history) == ("ModelMissing", [])
    assert info.failure.message.startswith(
        f"The Order with the key 42 is gone; the field 'order' of {kind!r} means it. If it was not committed yet"
    )
    [event] = heard
    assert (event.id, event.field, event.model, event.key, event.outcome) == (ref.id, "order", "Order", 42, "failed")
    assert "is failed: The Order with the key 42 is gone" in station.said()


@pytest.mark.parametrize("kind", ["class", "async", "field", "function"])
def test_or_drops_it_where_that_is_the_policy(
    station: Station, shop: Shop, models: SqlAlchemyModels, kind: str
) -> None:
    tape, heard = station.tape(), station.tape()
    listener(JobModelMissing)(heard.append)
    order = Order(id=42)
    shop.save(order)
    ref = closing(tape, order, "discard")[kind]().dispatch(retention="1h")
    shop.drop(order)
    station.drain()
    assert (station.state(ref.id), list(tape)) == (State.ABSENT, [])
    assert [(event.id, event.outcome) for event in heard] == [(ref.id, "discarded")]
    assert station.ends(ref.id) == ["discarded"]


def test_a_reference_fails_where_the_job_drops(station: Station, shop: Shop, models: SqlAlchemyModels) -> None:
    class Close(Job, name="close", on_missing="discard"):
        order: Annotated[Order, Reference(on_missing="fail")]

        def handle(self) -> None: ...

    order = Order(id=1)
    shop.save(order)
    with_it = Close(order=order)
    shop.drop(order)
    outcome = run_job(with_it)
    assert isinstance(outcome, GiveUp)
    assert isinstance(outcome.error, ModelMissing)


def test_the_failed_hook_has_its_models(station: Station, shop: Shop, models: SqlAlchemyModels) -> None:
    tape = station.tape()

    class Close(Job, name="close", tries=1):
        order: Order

        def handle(self) -> None:
            raise RuntimeError("no")

        def failed(self, error: BaseException) -> None:
            tape.append([self.order.id, self.order.status, str(error)])

    order = Order(id=1)
    shop.save(order)
    Close(order=order).dispatch()
    station.drain()
    assert list(tape) == [[1, "open", "no"]]
