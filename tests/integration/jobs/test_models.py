"""SQLAlchemy's models as fields of jobs, through a real server, a real worker and a database in a file."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import selectinload
from sqlalchemy.pool import NullPool

from delayq import Job, RunningJob, dispatch, job, use_models
from delayq.contrib.sqlalchemy_models import SqlAlchemyModels
from delayq.core.errors import ConfigError, InvalidPayload
from delayq.core.outcome import Ack, GiveUp
from delayq.jobs.dispatch import named
from delayq.jobs.references.reference import Reference
from delayq.testing import run_job
from tests.support.shop_tables import Animal, Base, Customer, Dog, Line, Note, Order, Shop
from tests.support.station import Station

pytestmark = pytest.mark.usefixtures("manager")


@dataclass
class Box:
    """Something with a model inside."""

    order: Order


def payload_of(station: Station, job_id: str) -> Any:
    return station.job(job_id).data


def test_every_kind_of_job_gets_the_model(station: Station, shop: Shop, models: SqlAlchemyModels) -> None:
    tape = station.tape()

    class Close(Job, name="close.class"):
        order: Order

        def handle(self) -> None:
            tape.append(("class", self.order.id, self.order.status))
            self.order.status = "closed"
            models.current_session().commit()

    @job("close.function")
    def close(order: Order, reason: str = "late") -> None:
        tape.append(("function", order.id, order.status, reason))

    class CloseLater(Job, name="close.async"):
        order: Order

        async def handle(self) -> None:
            tape.append(("async", self.order.id, self.order.status))

    order = Order(id=7)
    shop.save(order)
    ref = Close(order=order).dispatch()
    assert payload_of(station, ref.id) == {"order": {"model": "Order", "key": 7}}
    station.drain()
    refs = [close.job(order).dispatch(), CloseLater(order=order).dispatch()]
    refs.append(dispatch("close.function", {"order": {"model": "Order", "key": 7}, "reason": "by name"}))
    station.drain()
    assert tape[0] == ("class", 7, "open")
    assert sorted(tape[1:]) == [
        ("async", 7, "closed"), ("function", 7, "closed", "by name"), ("function", 7, "closed", "late"),
    ]  # fmt: skip
    assert [station.ends(one.id) for one in (ref, *refs)] == [["done"]] * 4


def test_every_kind_of_key_and_container(station: Station, shop: Shop, models: SqlAlchemyModels) -> None:
    tape = station.tape()

    class Everything(Job, name="everything"):
        customer: Customer
        line: Line
        orders: list[Order]
        lines: tuple[Line, ...]
        by_name: dict[str, Order]
        animal: Animal
        note: Note
        maybe: Order | None = None
        either: Order | Customer | int = 3

        def handle(self) -> None:
            tape.append([self.customer.name, self.line.text, [one.id for one in self.orders]])
            tape.append([[one.text for one in self.lines], {name: one.id for name, one in self.by_name.items()}])
            tape.append([type(self.animal).__name__, self.note.text, self.maybe, self.either])

    ann, orders = Customer(name="Ann"), [Order(id=n) for n in (3, 1, 2)]
    lines = [Line(order_id=1, number=n, text=f"line {n}") for n in (1, 2)]
    dog, note = Dog(id=5), Note(text="careful")
    shop.save(ann, *orders, *lines, dog, note)
    ref = Everything(
        customer=ann, line=lines[0], orders=[*orders, orders[0]], lines=tuple(lines), by_name={"a": orders[1]},
        animal=dog, note=note, either=ann,
    ).dispatch()  # fmt: skip
    sent = payload_of(station, ref.id)
    assert sent["customer"] == {"model": "Customer", "key": str(ann.id)}
    assert sent["line"] == {"model": "Line", "key": {"order_id": 1, "number": 1}}
    assert (sent["animal"], sent["note"]) == ({"model": "Animal", "key": 5}, {"model": "Note", "key": note.id})
    station.drain()
    assert list(tape)[:2] == [["Ann", "line 1", [3, 1, 2, 3]], [["line 1", "line 2"], {"a": 1}]]
    assert tape[2][:3] == ["Dog", "careful", None]
    assert isinstance(run_job(Everything(
        customer=ann, line=lines[0], orders=[], lines=(), by_name={}, animal=dog, note=note, maybe=orders[2],
    )), Ack)  # fmt: skip


def test_the_list_of_a_relationship(station: Station, shop: Shop, models: SqlAlchemyModels) -> None:
    """Which is a list of the ORM's own kind."""

    class Sum(Job, name="sum"):
        orders: list[Order]

        def handle(self) -> int:
            return sum(order.id for order in self.orders)

    ann = Customer(name="Ann", orders=[Order(id=1), Order(id=2)])
    shop.save(ann)
    assert type(ann.orders) is not list
    assert Sum(orders=ann.orders).dispatch_sync().result == 3


def test_one_query_and_a_closed_session(station: Station, shop: Shop) -> None:
    tape = station.tape()

    class Watched(shop.session.class_):  # type: ignore[misc, name-defined]
        def scalars(self, *args: Any, **kwargs: Any) -> Any:
            tape.append("query")
            return super().scalars(*args, **kwargs)

        def close(self) -> None:
            tape.append("close")
            super().close()

    use_models(SqlAlchemyModels(Base, session=lambda: Watched(shop.engine)))

    class Sum(Job, name="sum"):
        orders: list[Order]
        more: list[Order]

        def handle(self) -> None:
            tape.append(sum(order.id for order in (*self.orders, *self.more)))

    orders = [Order(id=n) for n in range(1, 21)]
    shop.save(*orders)
    Sum(orders=orders, more=orders[:2]).dispatch()
    station.drain()
    assert list(tape) == ["query", 213, "close"]


def test_what_is_loaded_along(station: Station, shop: Shop) -> None:
    tape = station.tape()
    use_models(SqlAlchemyModels(Base, session=shop.session, eager={Order: [selectinload(Order.customer)]}))

    class Greet(Job, name="greet"):
        order: Order
        bare: Annotated[Order, Reference(eager=())]

        def handle(self) -> None:
            tape.append(["customer" in vars(self.order), self.order.customer.name if self.order.customer else ""])

    ann = Customer(name="Ann")
    order = Order(id=1, customer=ann)
    shop.save(order)
    Greet(order=order, bare=order).dispatch()
    station.drain()
    assert list(tape) == [[True, "Ann"]]


def test_an_async_session(station: Station, shop: Shop) -> None:
    tape = station.tape()

    def session() -> AsyncSession:
        engine = create_async_engine(f"sqlite+aiosqlite:///{shop.path}", poolclass=NullPool)
        return async_sessionmaker(engine)()

    models = SqlAlchemyModels(Base, session=shop.session, async_session=session)
    use_models(models)

    class Close(Job, name="close"):
        orders: list[Order]
        line: Line

        async def handle(self) -> None:
            found = models.current_async_session()
            tape.append([[order.id for order in self.orders], self.line.text, all(one in found for one in self.orders)])

    orders = [Order(id=n) for n in (1, 2)]
    line = Line(order_id=1, number=1, text="line")
    shop.save(*orders, line)
    Close(orders=orders, line=line).dispatch()
    station.drain()
    assert list(tape) == [[[1, 2], "line", True]]


@pytest.mark.parametrize("is_async", [False, True])
def test_middleware_sees_the_model(station: Station, shop: Shop, models: SqlAlchemyModels, is_async: bool) -> None:
    tape = station.tape()

    class Mark:
        def handle(self, job: RunningJob, next: Any) -> Any:
            tape.append(job.fields["order"].status)
            return next(job)

        async def ahandle(self, job: RunningJob, next: Any) -> Any:
            tape.append(job.fields["order"].status)
            return await next(job)

    class Plain(Job, name="plain", middleware=[Mark()]):
        order: Order

        def handle(self) -> None:
            tape.append(self.order.id)

    class Later(Job, name="later", middleware=[Mark()]):
        order: Order

        async def handle(self) -> None:
            tape.append(self.order.id)

    order = Order(id=1, status="paid")
    shop.save(order)
    (Later if is_async else Plain)(order=order).dispatch()
    station.drain()
    assert list(tape) == ["paid", 1]


def test_no_class_but_those_of_the_field(station: Station, shop: Shop, models: SqlAlchemyModels) -> None:
    class Close(Job, name="close", tries=1):
        order: Order

        def handle(self) -> None: ...

    shop.save(Customer(name="Ann"))
    for reference, says in [
        ({"model": "Customer", "key": 1}, "holds the model 'Customer', not Order"),
        ({"model": "os.path", "key": 1}, "holds the model 'os.path', not Order"),
        ({"model": "Order", "key": "one"}, "'one' is no key of a Order"),
        ({"model": "Order", "key": 1, "more": 1}, "unknown field `more`"),
        (7, "Expected `object`, got `int`"),
    ]:
        outcome = run_job(named("close", {"order": reference}))
        assert isinstance(outcome, GiveUp)
        assert says in str(outcome.error)


def test_a_model_where_nobody_would_load_it_is_refused(station: Station, models: SqlAlchemyModels) -> None:
    with pytest.raises(ConfigError, match="'close' has a field with a Order inside of something else"):

        class Close(Job, name="close"):
            box: Box

            def handle(self) -> None: ...

    class Anything(Job, name="anything"):
        value: Any

        def handle(self) -> None: ...

    with pytest.raises(InvalidPayload, match="The field 'value' of 'anything'"):
        Anything(value=Note(text="a dataclass too")).dispatch()


def test_the_wrong_model_is_refused_at_the_dispatch(station: Station, shop: Shop, models: SqlAlchemyModels) -> None:
    class Close(Job, name="close"):
        order: Order

        def handle(self) -> None: ...

    ann = Customer(name="Ann")
    shop.save(ann)
    wrong: Any = ann
    with pytest.raises(InvalidPayload, match="The field 'order' of 'close' takes Order, not Customer"):
        Close(order=wrong).dispatch()


def test_models_may_be_made_known_after_the_jobs(station: Station, shop: Shop) -> None:
    tape = station.tape()

    class Close(Job, name="close"):
        order: Order

        def handle(self) -> None:
            tape.append(self.order.id)

    use_models(SqlAlchemyModels(Base, session=shop.session))
    order = Order(id=1)
    shop.save(order)
    Close(order=order).dispatch()
    station.drain()
    assert list(tape) == [1]


def test_a_model_that_was_renamed_keeps_its_old_name(station: Station, shop: Shop) -> None:
    tape = station.tape()
    use_models(SqlAlchemyModels(Base, session=shop.session, names={"Purchase": Order}))

    class Close(Job, name="close"):
        order: Order

        def handle(self) -> None:
            tape.append(self.order.id)

    order = Order(id=1)
    shop.save(order)
    ref = Close(order=order).dispatch()
    assert payload_of(station, ref.id) == {"order": {"model": "Purchase", "key": 1}}
    station.drain()
    assert list(tape) == [1]


def test_a_session_only_while_a_job_with_models_runs(models: SqlAlchemyModels) -> None:
    with pytest.raises(ConfigError, match="No job with models runs here"):
        models.current_session()


async def test_run_here_without_a_worker(station: Station, shop: Shop, models: SqlAlchemyModels) -> None:
    class Later(Job, name="later"):
        order: Order

        async def handle(self) -> str:
            await asyncio.sleep(0)
            return self.order.status

    order = Order(id=1)
    shop.save(order)
    assert (await Later(order=order).adispatch_sync()).result == "open"
