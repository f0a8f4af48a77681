"""An order is closed 15 minutes after it was placed, unless it is paid."""

from __future__ import annotations

from delayq import Job
from delayq.redis.client import Client
from delayq.testing import Travel

ORDERS: dict[int, str] = {}  # stands for a table of the shop


class CloseOrder(Job, name="order.timeout", queue="orders"):
    order_id: int

    def handle(self) -> None:
        ORDERS[self.order_id] = "closed"


def place(order_id: int) -> None:
    ORDERS[order_id] = "open"
    CloseOrder(order_id=order_id).dispatch(delay="15m", id=f"close-{order_id}")


def pay(order_id: int, q: Client) -> bool:
    """Who was first, the payment or the timeout? The answer of `cancel` decides it, once and for all."""
    if q.cancel(f"close-{order_id}", queue="orders") != "cancelled":
        return False
    ORDERS[order_id] = "paid"
    return True


def test_an_order_that_nobody_pays_is_closed(delayq_travel: Travel) -> None:
    place(42)
    delayq_travel("14m")
    assert ORDERS[42] == "open"
    delayq_travel("1m")
    assert ORDERS[42] == "closed"


def test_an_order_that_is_paid_stays(delayq_travel: Travel) -> None:
    place(43)
    delayq_travel("14m")
    assert pay(43, delayq_travel.client)
    delayq_travel("1d")
    assert ORDERS[43] == "paid"


def test_a_payment_that_comes_too_late_is_told_so(delayq_travel: Travel) -> None:
    place(44)
    delayq_travel("15m")
    assert not pay(44, delayq_travel.client)
    assert ORDERS[44] == "closed"
