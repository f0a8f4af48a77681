"""consumers/fastapi_service without Redis."""

from __future__ import annotations

from pathlib import Path

from tests.consumers.test_web_services import request, serving


def test_a_redis_that_is_away_is_503_on_a_payment_too(tmp_path: Path) -> None:
    with serving("fastapi_service", "redis://127.0.0.1:1/0", tmp_path, "15m") as (port, _):
        said = request(port, "POST", "/orders/1/payment")
        assert said == (503, {"detail": "Orders cannot be reached at the moment."})
