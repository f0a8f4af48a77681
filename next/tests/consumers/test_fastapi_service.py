"""fastapi_service: a real web server and a real worker."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import DelayQ
from tests.consumers.programs import CONSUMERS, Programs
from tests.consumers.web import Serve, serving, told
from tests.support.waiting import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def serve(programs: Programs) -> Iterator[Serve]:
    with serving(programs, CONSUMERS / "fastapi_service", "app:app") as start:
        yield start


def test_an_order_is_placed_and_paid(serve: Serve, q: DelayQ) -> None:
    web = serve()
    assert told(web.get("/orders/42")) == (404, "There is no such order.")
    assert told(web.post("/orders/42/payment")) == (404, "There is no such order.")
    assert [told(web.put("/orders/42")), told(web.put("/orders/42"))] == [(201, "open"), (200, "open")]
    assert [job.id for job in q.iter_jobs("scheduled")] == ["close-42"]
    assert [told(web.post("/orders/42/payment")) for _ in range(2)] == [(200, "paid"), (200, "paid")]
    wait_until(lambda: q.get("close-42") is None)
    assert told(web.get("/orders/42")) == (200, "paid")
    assert web.put("/orders/0").status_code == web.put(f"/orders/{2**63}").status_code == 422


def test_a_worker_closes_an_unpaid_order(serve: Serve, programs: Programs, q: DelayQ) -> None:
    web = serve()
    web.put("/orders/42")
    q.run_now("close-42")
    q.schedule("order.close", {"order_id": 43}, id="close-43")  # a request that failed left this job behind
    programs.run(
        *[sys.executable, "-m", "delayq", "work", "--app", "app", "--queue", "orders", "--stop-when-empty"],
        PYTHONPATH=f"{CONSUMERS / 'fastapi_service'}:{CONSUMERS.parent}",
    )
    assert q.stats("orders")[0].failed == 0
    assert told(web.get("/orders/42")) == (200, "closed")
    assert told(web.post("/orders/42/payment")) == (409, "The order is closed.")
    assert told(web.put("/orders/42")) == (200, "closed")


def test_without_redis_orders_are_paid_but_not_placed(serve: Serve, q: DelayQ, tmp_path: Path) -> None:
    web = serve()
    web.put("/orders/42")
    alone = serve("alone", DELAYQ_URL=f"unix://{tmp_path}/none.sock")
    assert told(alone.post("/orders/42/payment")) == (200, "paid")
    refused = alone.put("/orders/43")
    assert told(refused) == (503, "The order was not placed. Repeat the request.")
    assert refused.headers["Retry-After"] == "5"
    assert told(alone.get("/orders/43")) == (404, "There is no such order.")
    assert q.get("close-42") is not None
