"""What users write, and what a strict type checker must find nothing wrong with. Nothing here is run."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, assert_type

from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from delayq import (
    Answer,
    Dispatch,
    FailOnException,
    Job,
    JobContext,
    JobEnded,
    JobInfo,
    JobRef,
    MailMessage,
    Middleware,
    Next,
    Notification,
    OnMissing,
    Ran,
    Recipient,
    Reference,
    RunningJob,
    Skip,
    adispatch_many,
    announce,
    dispatch,
    dispatch_many,
    handles,
    job,
    listener,
    notify,
    queued_listener,
    use_middleware,
    use_models,
)
from delayq.contrib.sqlalchemy_models import SqlAlchemyModels


class Order(Job, queue="orders", tries=3, backoff=["10s", timedelta(minutes=1)], timeout="30s", on_timeout="fail"):
    """A base: fields and options for others."""

    order_id: int


class CloseOrder(Order, name="order.close", retry_until="1h", max_exceptions=2, tags=lambda job: [str(job.order_id)]):
    why: str = "late"
    lines: list[Decimal] = dataclasses.field(default_factory=list)

    def handle(self, context: JobContext) -> None:
        assert_type(self.order_id, int)
        self.release("5m")

    def failed(self, error: BaseException) -> None: ...


class Timed:
    def handle(self, job: RunningJob, next: Next) -> object:
        return next(job)

    async def ahandle(self, job: RunningJob, next: Next) -> object:
        return await next(job)


@contextmanager
def watched(job: RunningJob) -> Generator[None]:
    yield


@asynccontextmanager
async def waited(job: RunningJob) -> AsyncGenerator[None]:
    yield


class Refund(Job, middleware=[Timed, Timed(), watched, waited, threading.Lock(), lambda job, next: next(job)]):
    order_id: int

    def middleware(self) -> Sequence[Middleware]:
        return [Skip.when(lambda job: job.context.attempt > self.order_id), FailOnException(KeyError, ValueError)]

    def handle(self) -> None: ...


use_middleware(Timed(), watched)


@dataclasses.dataclass(frozen=True)
class OrderPaid:
    order_id: int


@listener(OrderPaid)
def paid(event: OrderPaid) -> None: ...


@listener(JobEnded)
def ended(event: JobEnded) -> None:
    assert_type(event.outcome, str)


@queued_listener(OrderPaid, queue="mail", delay="5m", tries=3, when=lambda event: event.order_id > 0)
def receipt(event: OrderPaid) -> None: ...


@queued_listener(OrderPaid, dispatch=lambda event: {"queue": "vip"})
class Receipt(Job, tries=3):
    event: OrderPaid

    def handle(self) -> None: ...


assert_type(announce(OrderPaid(order_id=1)), list[JobRef])


class InvoicePaid(Notification, queue="notices", tries=3):
    invoice: int

    def via(self, to: Recipient) -> Sequence[str]:
        return ["mail"]

    def to_mail(self, to: Recipient) -> MailMessage:
        return MailMessage(f"Invoice {self.invoice}", to.name)


assert_type(notify(Recipient({"mail": "ann@example.org"}), InvoicePaid(invoice=1)), list[JobRef])


def after_error(attempt: int, error: BaseException) -> str:
    return "5m" if isinstance(error, TimeoutError) else f"{attempt}m"


def after_anything(attempt: int, error: BaseException | None) -> timedelta:
    return timedelta(minutes=attempt)


@job("poll.often", backoff=after_error)
def poll_often() -> None: ...


@job("poll.seldom", backoff=after_anything)
def poll_seldom() -> None: ...


class Poll(Job, delay="5s", backoff=lambda attempt, error: timedelta(seconds=attempt)):
    async def handle(self) -> int:
        return 1

    async def failed(self, error: BaseException) -> None: ...


@job("order.note", queue="orders", tries=2)
def note(context: JobContext, order_id: int, *, text: str = "-") -> bool:
    return bool(text)


@job("order.count")
async def count(order_ids: list[int]) -> int:
    return len(order_ids)


@handles("Mailer", queue="mail")
class Mailer:
    def send(self, context: JobContext, data: dict[str, str]) -> None: ...


def send(context: JobContext) -> None:
    assert_type(CloseOrder(order_id=1).dispatch(delay="15m"), JobRef)
    assert_type(CloseOrder(order_id=1, why="paid", lines=[]).on_queue("vip").delay("15m"), Dispatch)
    CloseOrder(order_id=1).delay(datetime.now(UTC)).tags("a", "b").with_headers({"trace": "1"}).dispatch(id="o-1")
    CloseOrder(order_id=1).dispatch(at="2026-11-21T15:00:00Z", on_conflict="replace", deadline=timedelta(hours=1))
    assert_type(CloseOrder(order_id=1).without_delay().dispatch_sync(), Ran)
    Poll().on_connection("sync").dispatch_after_response()
    note.job(1, text="x").delay("1m").dispatch()
    note.job(order_id=1).dispatch(queue="vip")
    assert_type(note(context, 1), bool)
    count.job([1]).dispatch()
    assert_type(dispatch("order.close", {"order_id": 1}, queue="orders", tries=3), JobRef)
    assert_type(dispatch_many([CloseOrder(order_id=1), Poll().delay("5s"), note.job(1)]), list[JobRef])


async def asend() -> None:
    assert_type(await Poll().adispatch(delay="5m"), JobRef)
    assert_type(await Poll().delay("1m").adispatch(), JobRef)
    assert_type(await adispatch_many([Poll()]), list[JobRef])


class Base(DeclarativeBase): ...


class Parcel(Base):
    __tablename__ = "parcels"
    id: Mapped[int] = mapped_column(primary_key=True)


class Ship(Job, name="order.ship", encrypted=True, on_missing="discard"):
    order: Parcel
    more: Annotated[list[Parcel], Reference(on_missing=OnMissing.FAIL)]
    maybe: Parcel | None = None

    def handle(self) -> int:
        return self.order.id


@job("order.weigh", encrypted=True, on_missing="fail")
def weigh(order: Parcel) -> int:
    return order.id


def send_models(order: Parcel) -> None:
    models = SqlAlchemyModels(Base, session=sessionmaker(), eager={Parcel: []})
    use_models(models)
    assert_type(models.current_session(), Session)
    Ship(order=order, more=[order]).dispatch(encrypted=False)
    weigh.job(order).dispatch()


async def jobs_by_id(ref: JobRef) -> None:
    assert_type(CloseOrder.cancel("order-42", running=True), Answer)
    assert_type(CloseOrder.find("order-42"), JobInfo | None)
    assert_type(await CloseOrder.acancel("order-42"), Answer)
    assert_type(await CloseOrder.afind("order-42"), JobInfo | None)
    assert_type(ref.cancel(), Answer)
    assert_type(ref.refresh(), JobInfo | None)
    assert_type(await ref.acancel(), Answer)
    assert_type(ref.run_now(), JobRef)
    assert_type(ref.reschedule(delay="5m"), JobRef)
    assert_type(await ref.areschedule(at=datetime.now(UTC)), JobRef)
    assert_type(await ref.arun_now(), JobRef)
    assert_type(await ref.arefresh(), JobInfo | None)
    assert_type(ref.wait("30s"), JobInfo | None)
    assert_type(ref.wait(timedelta(seconds=30)), JobInfo | None)
    assert_type(await ref.await_("30s"), JobInfo | None)
    assert_type(ref.result(), Any)
    assert_type(ref.result("30s"), Any)
    assert_type(await ref.aresult("30s"), Any)
    assert_type(weigh.cancel("order-42"), Answer)
    assert_type(await weigh.acancel("order-42", running=True), Answer)
    assert_type(weigh.find("order-42"), JobInfo | None)
    assert_type(await weigh.afind("order-42"), JobInfo | None)
