"""An order that nobody pays in time is closed: the job that does it, and the two moments that schedule and cancel it.

delayq work --app consumers.order_timeout.jobs        serves the queue `orders`, from the root of the checkout
"""

from __future__ import annotations

from consumers.order_timeout.shop import Shop
from delayq import Answer, DelayQ, JobContext, job

QUEUE = "orders"


@job("order.close", queue=QUEUE, tries=3, backoff=["1s", "10s"])
def close_order(order_id: int, context: JobContext) -> None:
    """Runs when the time to pay is over, at least once. A raised exception is tried again, three times in all."""
    closed = Shop().close(order_id)
    print(f"order {order_id}: {'closed' if closed else 'left as it is'} (attempt {context.attempt})", flush=True)


def place_order(q: DelayQ, shop: Shop, order_id: int, *, time_to_pay: str) -> None:
    """Schedule first, store then: a crash in between leaves a job that finds nothing to do, never an order for ever."""
    q.schedule("order.close", {"order_id": order_id}, delay=time_to_pay, id=f"order-{order_id}", queue=QUEUE)
    shop.place(order_id)


def pay_order(q: DelayQ, shop: Shop, order_id: int) -> bool:
    """True when the payment is in time. `cancel` decides: after `cancelled` nobody will close the order any more.

    `running` means that it is being closed just now: too late. For `unknown` (closed by now, or cancelled by an earlier
    try of this payment that died half-way) and `failed` (it could not be closed) the shop knows.
    """
    answer = q.cancel(f"order-{order_id}", queue=QUEUE)
    return answer is not Answer.RUNNING and shop.pay(order_id)
