"""Jobs with its models. To be imported once Django is set up."""

from __future__ import annotations

from typing import Annotated, Any

from delayq import Job, Reference, job
from delayq.jobs.function import JobFunction
from tests.support.django_shop.models import Customer, Order
from tests.support.tape import Tape


def closing(tape: Tape[Any], **options: Any) -> type[Any]:
    """A class that writes down what it was given, and closes the order."""

    class Close(Job, **{"name": "close", **options}):
        order: Order
        customer: Customer | None = None

        def handle(self) -> None:
            tape.append([self.order.pk, self.order.status, self.customer and self.customer.name])
            self.order.status = "closed"
            self.order.save()

    return Close


def looking(tape: Tape[Any]) -> type[Any]:
    """An async class that writes down the states of orders."""

    class Look(Job, name="look"):
        orders: list[Order]

        async def handle(self) -> None:
            tape.append([order.status for order in self.orders])

    return Look


def showing(tape: Tape[Any]) -> JobFunction[..., Any]:
    """A function that does, for one."""

    @job("show")
    def show(order: Order) -> None:
        tape.append(order.status)

    return show


def greeting(tape: Tape[Any]) -> type[Any]:
    """Writes down whether its orders came with their customers."""

    class Greet(Job, name="greet"):
        order: Order
        bare: Annotated[Order, Reference(eager=lambda orders: orders)]

        def handle(self) -> None:
            tape.append(["customer" in one._state.fields_cache for one in (self.order, self.bare)])

    return Greet
