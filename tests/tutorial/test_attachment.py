"""The papers of an order are pushed to a partner 30 minutes after it, once the customer can no longer change it."""

from __future__ import annotations

from delayq import Discard, Job
from delayq.testing import Travel

CANCELLED: set[int] = set()
PUSHED: list[tuple[int, str]] = []
PARTNER_IS_DOWN: list[int] = []  # orders for which the partner does not answer the next time


class PushAttachment(Job, name="attachment.push", queue="partners", tries=5, backoff=["1m", "10m"]):
    order_id: int
    path: str

    def handle(self) -> None:
        if self.order_id in CANCELLED:
            raise Discard
        if self.order_id in PARTNER_IS_DOWN:
            PARTNER_IS_DOWN.remove(self.order_id)
            raise ConnectionError("the partner does not answer")
        PUSHED.append((self.order_id, self.path))


def place(order_id: int) -> None:
    PushAttachment(order_id=order_id, path=f"orders/{order_id}.pdf").dispatch(delay="30m")


def test_it_is_pushed_after_half_an_hour(delayq_travel: Travel) -> None:
    place(42)
    assert delayq_travel("29m") == []
    assert [attempt.ended for attempt in delayq_travel("1m")] == ["done"]
    assert PUSHED[-1] == (42, "orders/42.pdf")


def test_a_partner_that_is_down_gets_it_later(delayq_travel: Travel) -> None:
    PARTNER_IS_DOWN.extend([43, 43])
    place(43)
    attempts = delayq_travel("1h")
    assert [attempt.ended for attempt in attempts] == ["released", "released", "done"]
    assert attempts[-1].at_ms - attempts[0].at_ms == 11 * 60_000
    assert PUSHED[-1] == (43, "orders/43.pdf")


def test_what_was_cancelled_is_not_pushed(delayq_travel: Travel) -> None:
    place(44)
    CANCELLED.add(44)
    assert [attempt.ended for attempt in delayq_travel("1h")] == ["discarded"]
    assert (44, "orders/44.pdf") not in PUSHED
