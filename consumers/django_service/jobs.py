"""What falls due. A worker imports this: delayq work --app consumers.django_service.jobs"""

from __future__ import annotations

import os

from consumers.django_service.shop import Order
from delayq import Job


class CloseOrder(Job, name="order.close", queue="orders", tries=3, backoff=["1s", "10s"], after_commit=True):
    """Closes an order that nobody paid. It is sent when the transaction that placed the order is committed."""

    order_id: int

    def handle(self) -> None:
        closed = Order.turn(self.order_id, into="closed")
        print(f"order {self.order_id}: {'closed' if closed else 'left as it is'}", flush=True)

    @classmethod
    def schedule(cls, order_id: int) -> None:
        """Its id is the order's: placing twice schedules one job."""
        delay = os.environ.get("TIME_TO_PAY", "15m")
        cls(order_id=order_id).dispatch(delay=delay, id=f"order-{order_id}")
