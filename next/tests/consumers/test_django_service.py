"""django_service: a real web server and a real worker."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq import DelayQ
from tests.consumers.programs import CONSUMERS, Programs
from tests.consumers.web import Serve, serving, told

pytestmark = pytest.mark.processes

FOLDER = CONSUMERS / "django_service"


@pytest.fixture
def serve(programs: Programs) -> Iterator[Serve]:
    programs.run(sys.executable, str(FOLDER / "manage.py"), "migrate", "-v", "0")
    with serving(programs, FOLDER, "shop.asgi:application") as start:
        yield start


def test_an_order_is_placed_and_paid(serve: Serve, q: DelayQ) -> None:
    web = serve()
    assert told(web.get("/orders/42")) == (404, "There is no such order.")
    assert told(web.post("/orders/42/payment")) == (404, "There is no such order.")
    assert [told(web.put("/orders/42")), told(web.put("/orders/42"))] == [(201, "open"), (200, "open")]
    (job,) = q.iter_jobs("scheduled")
    assert (job.id, job.data) == ("close-42", {"order": {"model": "shop.Order", "key": 42}})
    assert [told(web.post("/orders/42/payment")) for _ in range(2)] == [(200, "paid"), (200, "paid")]
    assert q.get("close-42") is None
    assert told(web.put("/orders/42")) == (200, "paid")
    assert q.get("close-42") is None


def test_a_worker_closes_an_unpaid_order(serve: Serve, programs: Programs, q: DelayQ) -> None:
    web = serve()
    web.put("/orders/42")
    q.run_now("close-42")
    programs.run(
        *[sys.executable, "-m", "delayq", "work", "--app", "shop.worker", "--queue", "orders", "--stop-when-empty"],
        PYTHONPATH=f"{FOLDER}:{CONSUMERS.parent}",
    )
    assert q.stats("orders")[0].failed == 0
    assert told(web.get("/orders/42")) == (200, "closed")
    assert told(web.post("/orders/42/payment")) == (409, "The order is closed.")


def test_without_redis_an_order_is_stored_and_gets_its_job_later(serve: Serve, q: DelayQ, tmp_path: Path) -> None:
    alone = serve("alone", DELAYQ_URL=f"unix://{tmp_path}/none.sock")
    assert told(alone.put("/orders/42")) == (503, "The order has no job yet. Repeat the request.")
    assert told(alone.get("/orders/42")) == (200, "open")
    web = serve()
    assert told(web.put("/orders/42")) == (200, "open")
    assert [job.id for job in q.iter_jobs("scheduled")] == ["close-42"]
    assert told(alone.post("/orders/42/payment")) == (200, "paid")
