"""django_service: a real web server and a real worker."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from delayq import DelayQ
from tests.consumers.programs import CONSUMERS, Programs
from tests.support.waiting import wait_until

pytestmark = pytest.mark.processes

FOLDER = CONSUMERS / "django_service"
APP = [sys.executable, "-m", "uvicorn", "shop.asgi:application", "--app-dir", str(FOLDER), "--uds"]

Serve = Callable[..., httpx.Client]


@pytest.fixture
def serve(programs: Programs) -> Iterator[Serve]:
    """Starts a web server in the folder of the test, and returns a client of it."""
    programs.run(sys.executable, str(FOLDER / "manage.py"), "migrate", "-v", "0")
    with ExitStack() as stack:

        def start(name: str = "web", **environment: str) -> httpx.Client:
            path = programs.folder / f"{name}.sock"
            programs.start(*APP, str(path), log=name, **environment)
            wait_until(path.exists)
            return stack.enter_context(
                httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://shop", timeout=20)
            )

        yield start


def told(response: httpx.Response) -> tuple[int, str]:
    body = response.json()
    return response.status_code, body.get("state", body.get("detail"))


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
