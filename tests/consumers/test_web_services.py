"""consumers/fastapi_service and consumers/django_service: real servers, real workers, requests by http.client."""

from __future__ import annotations

import http.client
import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from delayq import DelayQ
from tests.consumers.programs import END_TIMEOUT_S, ROOT, Program, running
from tests.support.waiting import wait_until

SERVICES = ("fastapi_service", "django_service")
pytestmark = pytest.mark.parametrize("service", SERVICES)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def request(port: int, method: str, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if body.startswith(b"{") else None
    finally:
        connection.close()


def answers(port: int) -> bool:
    try:
        return request(port, "GET", "/orders/0")[0] == 404
    except OSError:
        return False


@contextmanager
def serving(service: str, url: str, folder: Path, time_to_pay: str) -> Iterator[tuple[int, Program]]:
    port = free_port()
    environ = {"DELAYQ_URL": url, "ORDERS_DB": str(folder / "orders.sqlite3"), "TIME_TO_PAY": time_to_pay}
    with running(["-m", f"consumers.{service}", str(port)], folder, **environ) as program:
        wait_until(lambda: answers(port) or program.process.poll() is not None, what="it serves")
        assert program.process.poll() is None, program.complaints
        yield port, program
        program.process.send_signal(signal.SIGTERM)
        program.process.wait(timeout=END_TIMEOUT_S)


def test_an_order_is_paid_or_closed(service: str, redis_url: str, tmp_path: Path) -> None:
    with serving(service, redis_url, tmp_path, "15m") as (port, program), DelayQ(redis_url) as q:
        for order in ("1", "1", "7"):
            assert request(port, "POST", f"/orders/{order}")[0] == 201
        assert [job.id for job in q.iter_jobs("scheduled", queue="orders")] == ["order-1", "order-7"]
        q.run_now("order-1", queue="orders")
        wait_until(lambda: request(port, "GET", "/orders/1")[1]["state"] == "closed", what="it is closed")
        wait_until(lambda: "order 1: closed" in program.output, what="the worker says so")
        assert request(port, "POST", "/orders/1/payment")[0] == 409
        assert request(port, "POST", "/orders/7/payment") == (200, {"order": 7, "state": "paid"})
        if service == "fastapi_service":
            assert q.get("order-7", queue="orders") is None, "cancel decided"
        else:
            q.run_now("order-7", queue="orders")
            wait_until(lambda: q.get("order-7", queue="orders") is None, what="the job found nothing to do")
            assert request(port, "POST", "/orders/8?fail=1")[0] == 500
            assert request(port, "GET", "/orders/8")[0] == 404
            assert q.get("order-8", queue="orders") is None, "what was rolled back sent no job"
        assert request(port, "GET", "/orders/7")[1]["state"] == "paid"


def test_its_files_are_short_enough_to_be_read(service: str) -> None:
    for path in (ROOT / "consumers" / service).glob("*.py"):
        assert len(path.read_text().splitlines()) <= 120
