"""Why a job has not run and why the server is not ready, over HTTP; a server that refuses writes."""

from __future__ import annotations

from pathlib import Path

import httpx

from delayq import DelayQ
from delayq.core.api_keys import Scope, new_key
from delayq.redis.keys import GROUP
from tests.http.test_access import bearer, key_file
from tests.support.metrics import samples
from tests.support.pages import Page
from tests.support.refusing import cannot_snapshot, fill
from tests.support.servers import OwnServer, connect
from tests.support.web import problem, web

WORKER = "dq:w1:77:abcdef"


def held_since(redis_url: str, idle_ms: int) -> None:
    """A job of the queue orders that a worker of delayq holds and has not spoken of for so long."""
    with DelayQ(redis_url) as q, connect(redis_url) as plain:
        q.schedule("order.close", id="o1", queue="orders")
        [[_, [[entry, _]]]] = plain.xreadgroup(GROUP, WORKER, {"delayq:{orders}:stream": ">"}, count=1)
        plain.xclaim("delayq:{orders}:stream", GROUP, WORKER, 0, [entry], idle=idle_ms, justid=True)


async def ready(api: httpx.AsyncClient, **headers: str) -> tuple[int, list[str]]:
    answer = await api.get("/readyz", headers=headers)
    body = answer.json()
    assert sorted(body) == ["ready", "why"]
    assert body["ready"] == (answer.status_code == 200) == (not body["why"])
    return answer.status_code, body["why"]


async def test_why_a_job_has_not_run(api: httpx.AsyncClient, redis_url: str) -> None:
    held_since(redis_url, 300_000)
    told = (await api.get("/v1/jobs/o1/why?queue=orders")).json()
    [reason] = told.pop("reasons")
    assert told == {"id": "o1", "name": "order.close", "queue": "orders", "state": "reserved"}
    assert (reason["code"], reason["weight"]) == ("silent", "problem")
    assert WORKER in reason["what"]
    assert "delayq move" in reason["next"]
    problem(await api.get("/v1/jobs/none/why?queue=orders"), 404, "job-not-found")


async def test_a_key_of_another_queue_is_not_told(redis_url: str, tmp_path: Path) -> None:
    held_since(redis_url, 300_000)
    mail = new_key(0, [Scope.READ], queues=["mail"])
    async with web(redis_url, api_keys_file=key_file(tmp_path, mail=mail)) as api:
        assert (await api.get("/v1/jobs/o1/why?queue=orders", headers=bearer(mail[1]))).status_code == 403
        assert (await api.get("/v1/jobs/o1/why?queue=orders")).status_code == 401


async def test_a_job_of_a_dead_worker_makes_it_unready(api: httpx.AsyncClient, redis_url: str) -> None:
    held_since(redis_url, 31_000)
    assert await ready(api) == (200, []), "a janitor still has time to take it back"
    with DelayQ(redis_url) as q:
        q.cancel("o1", queue="orders")
    with connect(redis_url) as plain:
        [row] = plain.xpending_range("delayq:{orders}:stream", GROUP, "-", "+", 1)
        entry = row["message_id"]
        plain.xclaim("delayq:{orders}:stream", GROUP, WORKER, 0, [entry], idle=300_000, justid=True)
    status, [why] = await ready(api)
    assert status == 503
    assert why == "A worker of the queue orders has been silent for 5m and holds jobs; no janitor takes them back."
    page = samples((await api.get("/metrics")).text)
    assert page["delayq_reserved_silent_jobs", "orders"] == 1


async def test_readyz_names_queues_to_callers_with_a_key_only(redis_url: str, tmp_path: Path) -> None:
    held_since(redis_url, 300_000)
    with DelayQ(redis_url) as q:
        q.schedule("order.close", delay="1h", queue="secret-project")
        q.schedule("order.close", delay="1h", queue="secret-project-2")
    orders, everything = new_key(0, [Scope.READ], queues=["orders"]), new_key(0, [Scope.READ])
    async with web(redis_url, api_keys_file=key_file(tmp_path, a=orders, b=everything)) as api:
        nameless = ["No mover ever looked at a queue."]
        for headers in ({}, bearer("dq_wrong_key")):
            status, why = await ready(api, **headers)
            assert (status, len(why), why[1:]) == (503, 2, nameless)
            assert "orders" not in why[0]
        status, why = await ready(api, **bearer(orders[1]))
        assert (status, why[1:]) == (503, nameless)
        assert "orders" in why[0]
        status, why = await ready(api, **bearer(everything[1]))
        assert [name in " ".join(why) for name in ("orders", "secret-project", "secret-project-2")] == [True] * 3


async def test_a_server_that_refuses_writes(own_server: OwnServer) -> None:
    server = own_server()
    with DelayQ(server.url) as q:
        q.schedule("order.close", delay="1h", id="o1", queue="orders")
    async with web(server.url) as api:
        page = samples((await api.get("/metrics")).text)
        assert page["delayq_redis_writable",] == 1
        assert page["delayq_redis_memory_used_bytes",] > 100_000
        assert ("delayq_redis_memory_limit_bytes",) not in page
        assert abs(page["delayq_clock_skew_seconds",]) < 2
        cannot_snapshot(server)
        assert await ready(api) == (
            503,
            ["Redis refuses every write: it cannot save its snapshot (RDB) to disk."],
        )
        reasons = (await api.get("/v1/jobs/o1/why?queue=orders")).json()["reasons"]
        assert ("writes-refused", "problem") in [(one["code"], one["weight"]) for one in reasons]
    async with web(server.url) as api:
        page = samples((await api.get("/metrics")).text)
        assert (page["delayq_redis_up",], page["delayq_redis_writable",]) == (1, 0)
        for path in ("/", "/queues", "/job?queue=orders&id=o1"):
            answer = await api.get(path)
            assert answer.status_code == 200, "reads work"
            assert "refuses every write" in Page(answer).text or path == "/queues"
        refused = problem(await api.post("/v1/jobs", json={"name": "x"}), 503, "backend-unavailable")
        assert "cannot save to disk" in refused["detail"]


async def test_a_full_server_is_not_ready_and_says_so(own_server: OwnServer) -> None:
    server = own_server()
    async with web(server.url) as api:
        assert await ready(api) == (200, [])
        fill(server)
        status, [why] = await ready(api)
        assert (status, why.startswith("Redis refuses new jobs: it uses 1")) == (503, True)
        page = samples((await api.get("/metrics")).text)
        assert page["delayq_redis_writable",] == 0
        assert page["delayq_redis_memory_used_bytes",] >= page["delayq_redis_memory_limit_bytes",] > 0


async def test_a_restart_of_redis_does_not_make_it_unready(own_server: OwnServer) -> None:
    server = own_server()
    async with web(server.url) as api:
        assert await ready(api) == (200, [])
        server.restart()
        assert await ready(api) == (200, [])
