"""What one worker is told over HTTP."""

from __future__ import annotations

from pathlib import Path

import httpx

from delayq import DelayQ
from delayq.core.api_keys import Scope, new_key
from tests.http.test_access import bearer, key_file
from tests.support.announcing import announce, order_of
from tests.support.web import problem, web


async def test_a_worker_is_told_what_to_do(api: httpx.AsyncClient, redis_url: str) -> None:
    announce(redis_url, "dq:web-1:2:b", ["orders"], worker="dq:web-1:1:a")
    told = await api.post("/v1/workers/dq:web-1:2:b/quiet", json={"reason": "it runs hot"})
    assert told.json() == {"worker": "dq:web-1:1:a", "order": "quiet", "processes": ["dq:web-1:2:b"]}
    assert order_of(redis_url, "dq:web-1:1:a") == "quiet"
    assert (await api.post("/v1/workers/dq:web-1:1:a/resume")).status_code == 200
    assert order_of(redis_url, "dq:web-1:1:a") == ""
    problem(await api.post("/v1/workers/dq:web-1:9:z/stop"), 404, "worker-not-found")
    problem(await api.post("/v1/workers/dq:web-1:1:a/halt"), 422, "invalid-input")
    with DelayQ(redis_url) as q:
        found = [(one.what, one.target, one.reason, one.outcome) for one in q.audit_log.last()]
    assert found == [
        ("worker stop", "dq:web-1:9:z", "", "refused"),
        ("worker resume", "dq:web-1:1:a", "", "done"),
        ("worker quiet", "dq:web-1:2:b", "it runs hot", "done"),
    ]


async def test_a_process_that_names_no_worker_takes_no_orders(api: httpx.AsyncClient, redis_url: str) -> None:
    announce(redis_url, "other:1", ["orders"])
    said = problem(await api.post("/v1/workers/other:1/stop"), 409, "conflict")
    assert "takes no orders" in said["detail"]


async def test_a_key_tells_workers_of_its_queues_alone(redis_url: str, tmp_path: Path) -> None:
    announce(redis_url, "w:1", ["orders"], worker="w")
    announce(redis_url, "x:1", ["orders", "secret"], worker="x")
    admin, writer = new_key(0, [Scope.ADMIN], queues=["orders"]), new_key(0, [Scope.WRITE])
    async with web(redis_url, api_keys_file=key_file(tmp_path, admin=admin, writer=writer)) as api:
        assert (await api.post("/v1/workers/w:1/quiet", headers=bearer(admin[1]))).status_code == 200
        assert (await api.post("/v1/workers/x:1/quiet", headers=bearer(admin[1]))).status_code == 403
        assert (await api.post("/v1/workers/w:1/stop", headers=bearer(writer[1]))).status_code == 403
    assert (order_of(redis_url, "w"), order_of(redis_url, "x")) == ("quiet", "")
