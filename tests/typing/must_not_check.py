"""What a strict type checker must find. Every `type: ignore` is one finding: where there is none, it is unused, and
that is an error too. Nothing here is run.
"""

from __future__ import annotations

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from delayq import Job, JobContext, JobRef, Notification, dispatch, dispatch_many, job, listener, use_models


class CloseOrder(Job, name="order.close", queue="orders"):
    order_id: int
    why: str = "late"

    def handle(self, context: JobContext) -> None:
        self.release(5)  # type: ignore[arg-type]  # no bare numbers
        self.atempts()  # type: ignore[attr-defined]  # misspelt


class Misspelt(Job, quee="orders"):  # type: ignore[call-arg]  # no such option
    pass


class WrongType(Job, tries="3"):  # type: ignore[arg-type]  # a number
    pass


class WrongMiddleware(Job, middleware=[7]):  # type: ignore[list-item]
    pass


class InvoicePaid(Notification):
    invoice: int


InvoicePaid(invoice="7")  # type: ignore[arg-type]  # a number
InvoicePaid(number=7)  # type: ignore[call-arg]  # no such field


@listener(InvoicePaid)  # type: ignore[arg-type]  # it would be given something else
def counted(event: str) -> None: ...


class WrongHook(Job):
    def failed(self, error: BaseException, again: int) -> None:  # type: ignore[override]  # takes the error alone
        ...


@job("order.note")
def note(context: JobContext, order_id: int, *, text: str = "-") -> None: ...


@job("order.count", tries="3")  # type: ignore[arg-type]
def count(order_ids: list[int]) -> int:
    return len(order_ids)


def send() -> None:
    CloseOrder()  # type: ignore[call-arg]  # a field is missing
    CloseOrder(order_id="1")  # type: ignore[arg-type]  # a field of another type
    CloseOrder(order_id=1, y=2)  # type: ignore[call-arg]  # a field nobody declared
    CloseOrder(1)  # type: ignore[call-arg]  # fields go by name
    CloseOrder(order_id=1).dispatch(dely="15m")  # type: ignore[call-arg]  # misspelt
    CloseOrder(order_id=1).dispatch(delay=15)  # type: ignore[arg-type]  # no bare numbers
    CloseOrder(order_id=1).delay(15)  # type: ignore[arg-type]
    CloseOrder(order_id=1).on_queu("vip")  # type: ignore[attr-defined]
    CloseOrder(order_id=1).tags(["a"])  # type: ignore[arg-type]  # one by one
    note.job()  # type: ignore[call-arg]
    note.job("1")  # type: ignore[arg-type]
    note.job(1, txt="x")  # type: ignore[call-arg]
    count.job(["1"])  # type: ignore[list-item]
    dispatch("order.close", delay=15)  # type: ignore[arg-type]
    dispatch_many(["order.close"])  # type: ignore[list-item]


async def asend() -> JobRef:
    return CloseOrder(order_id=1).adispatch()  # type: ignore[return-value]  # not awaited


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


class Ship(Job, name="order.ship", encrypted="yes"):  # type: ignore[arg-type]
    order: Order

    def handle(self) -> None:
        self.order.number  # type: ignore[attr-defined]  # noqa: B018  # a member its model has not


def send_models(order: Order) -> None:
    Ship(order=order.id)  # type: ignore[arg-type]  # the key is not the model
    Ship(order=[order])  # type: ignore[arg-type]
    Ship(order=order).dispatch(encrypted=1)  # type: ignore[arg-type]
    use_models(Order)  # type: ignore[arg-type]  # a model is not its models
