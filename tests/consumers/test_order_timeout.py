"""consumers/order_timeout: an order is paid or closed, never both, never neither."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from consumers.order_timeout import jobs
from consumers.order_timeout.shop import Shop
from delayq import DelayQ, JobContext, State
from delayq.jobs.registry import current
from tests.consumers.programs import running
from tests.support.waiting import wait_until

WORK = ["-m", "delayq", "work", "--app", "consumers.order_timeout.jobs", "--queue", "orders"]
ONCE = JobContext(
    id="order-1", name="order.close", queue="orders", attempt=1, tries=3, recoveries=0, due_ms=0, token="1-0"
)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("ORDERS_DB", str(tmp_path / "orders.sqlite3"))
    return Shop()


@pytest.fixture
def q(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[DelayQ]:
    monkeypatch.setenv("DELAYQ_URL", redis_url)
    with DelayQ() as q:
        yield q


def test_the_handler_is_registered_for_its_name_and_queue() -> None:
    assert current().get("order.close") is jobs.close_order
    assert jobs.close_order.options.queue == "orders"


def test_closing_twice_is_closing_once(shop: Shop, capfd: pytest.CaptureFixture[str]) -> None:
    shop.place(1)
    jobs.close_order(1, ONCE)
    jobs.close_order(1, ONCE)
    assert shop.orders() == [(1, "closed")]
    assert capfd.readouterr().out.splitlines() == [
        "order 1: closed (attempt 1)",
        "order 1: left as it is (attempt 1)",
    ]


def test_paying_in_time_takes_the_job_away(q: DelayQ, shop: Shop) -> None:
    jobs.place_order(q, shop, 1, time_to_pay="15m")
    waiting = q.get("order-1", queue="orders")
    assert waiting is not None
    assert waiting.state is State.SCHEDULED
    assert jobs.pay_order(q, shop, 1)
    assert q.get("order-1", queue="orders") is None
    assert shop.state(1) == "paid"


def test_a_payment_that_died_half_way_can_be_made_again(q: DelayQ, shop: Shop) -> None:
    jobs.place_order(q, shop, 1, time_to_pay="15m")
    assert q.cancel("order-1", queue="orders") == "cancelled"  # and then the paying process died
    assert jobs.pay_order(q, shop, 1)
    assert jobs.pay_order(q, shop, 1)
    assert shop.state(1) == "paid"


def test_paying_for_what_is_closed_is_too_late(q: DelayQ, shop: Shop) -> None:
    shop.place(1)
    assert shop.close(1)
    assert not jobs.pay_order(q, shop, 1)
    assert not jobs.pay_order(q, shop, 2)
    assert shop.orders() == [(1, "closed")]


def test_an_order_placed_twice_is_one_order(q: DelayQ, shop: Shop) -> None:
    jobs.place_order(q, shop, 1, time_to_pay="15m")
    first = q.get("order-1", queue="orders")
    jobs.place_order(q, shop, 1, time_to_pay="30m")
    second = q.get("order-1", queue="orders")
    assert first is not None
    assert second is not None
    assert (second.due_ms, shop.orders()) == (first.due_ms, [(1, "open")])


def test_paying_at_the_last_moment_ends_one_way_or_the_other(q: DelayQ, shop: Shop, tmp_path: Path) -> None:
    """Forty orders fall due while they are paid; what the payer was told is what the shop shows in the end."""
    with running(WORK, tmp_path) as worker:
        wait_until(lambda: "orders" in {queue for info in q.workers() for queue in info.queues})
        for order_id in range(40):
            jobs.place_order(q, shop, order_id, time_to_pay=f"{200 + 10 * order_id}ms")
        jobs.place_order(q, shop, 40, time_to_pay="15m")
        wait_until(lambda: shop.state(5) == "closed", what="some are closed, some are being closed, some wait")
        told = {order_id: jobs.pay_order(q, shop, order_id) for order_id in reversed(range(41))}
        wait_until(lambda: "open" not in {state for _, state in shop.orders()}, what="none is open")
        assert worker.terminate() == 0, worker.complaints
    assert {order_id: state == "paid" for order_id, state in shop.orders()} == told
    assert (told[40], told[5]) == (True, False)


@pytest.mark.timed  # two orders are paid within the second that there is for it
def test_the_show_ends_well(redis_url: str, shop: Shop, tmp_path: Path) -> None:
    with running(["-m", "consumers.order_timeout", "1s"], tmp_path, DELAYQ_URL=redis_url) as show:
        assert show.process.wait(timeout=40.0) == 0, show.complaints
    assert sorted(state for _, state in shop.orders()) == ["closed"] * 4 + ["paid"] * 2
