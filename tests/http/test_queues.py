"""Queues, workers, batches and deeds over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest

from delayq import DelayQ
from delayq.core.followups import Link, Plan
from delayq.core.spec import JobSpec, prepare
from tests.support.web import problem


@pytest.fixture
def orders(redis_url: str) -> None:
    with DelayQ(redis_url) as delayq:
        delayq.schedule_many({"name": "order.close", "queue": "orders", "delay": f"{n}m"} for n in (1, 2, 90))


async def test_a_queue_in_full(api: httpx.AsyncClient, orders: None) -> None:
    shown = (await api.get("/v1/queues/orders")).json()
    assert (shown["scheduled"], shown["lease_ms"], shown["durability"], shown["shards"]) == (3, 30_000, "memory", 1)
    assert shown["counters"]["scheduled_total"] == 3
    problem(await api.get("/v1/queues/nowhere"), 404, "not-found")
    problem(await api.get("/v1/queues/a%7Bb"), 422, "invalid-input")


async def test_paused_and_resumed(api: httpx.AsyncClient, orders: None, redis_url: str) -> None:
    rests = (await api.post("/v1/queues/orders/pause")).json()
    assert rests == {"queue": "orders", "paused": True, "paused_until_ms": 0}
    assert (await api.get("/v1/queues/orders")).json()["paused"] is True
    again = await api.post("/v1/queues/orders/pause", json={"length": "10m", "reason": "the bank is away"})
    assert again.json()["paused_until_ms"] > 0
    assert (await api.post("/v1/queues/orders/resume", json={})).json()["paused"] is False
    assert (await api.get("/v1/queues/orders")).json()["paused"] is False
    told = problem(await api.post("/v1/queues/orders/pause", json={"length": "soon"}), 422, "invalid-duration")
    assert told["errors"][0]["pointer"] == "#/length"
    problem(await api.post("/v1/queues/orders/pause", json={"for": "1m"}), 422, "invalid-input")
    deeds = (await api.get("/v1/audit", params={"limit": 2})).json()["deeds"]
    assert [(deed["what"], deed["on"], deed["reason"], deed["door"]) for deed in deeds] == [
        ("resume", "orders", "", "api"),
        ("pause", "orders", "the bank is away", "api"),
    ]


async def test_a_queue_is_removed_when_it_holds_nothing(api: httpx.AsyncClient, orders: None, redis_url: str) -> None:
    told = problem(await api.delete("/v1/queues/orders"), 409, "queue-in-use")
    assert "3 scheduled" in told["detail"]
    with DelayQ(redis_url) as delayq:
        delayq.clear("orders")
    assert (await api.delete("/v1/queues/orders")).json() == {"queue": "orders", "removed": True}
    assert (await api.get("/v1/queues")).json() == {"queues": [], "next": None}
    problem(await api.delete("/v1/queues/orders"), 404, "queue-not-found")
    deeds = (await api.get("/v1/audit", params={"limit": 1})).json()["deeds"]
    assert [(deed["what"], deed["on"]) for deed in deeds] == [("queue remove", "orders")]


async def test_what_falls_due_when(api: httpx.AsyncClient, orders: None) -> None:
    found = (await api.get("/v1/queues/orders/upcoming", params={"span": "1h", "spans": 1})).json()
    assert (found["counts"], found["later"], found["overdue"]) == ([2], 1, 0)
    for query, pointer in (({"spans": 501}, "?spans"), ({"span": "1 h"}, "?span"), ({"spans": "x"}, "?spans")):
        answer = await api.get("/v1/queues/orders/upcoming", params=query)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


async def test_nobody_works_here(api: httpx.AsyncClient) -> None:
    assert (await api.get("/v1/workers")).json() == {"workers": []}


async def test_a_batch(api: httpx.AsyncClient, redis_url: str) -> None:
    with DelayQ(redis_url) as delayq:
        delayq.batches.open(Plan(id="b1", name="prices"))
    [listed] = (await api.get("/v1/batches")).json()["batches"]
    shown = (await api.get("/v1/batches/b1")).json()
    assert {**listed, "failed_members": [], "pending_members": []} == shown
    assert (shown["id"], shown["name"], shown["total"]) == ("b1", "prices", 0)
    assert (await api.post("/v1/batches/b1/retry")).json() == {"id": "b1", "retried": 0}
    for path in ("/v1/batches/none", "/v1/batches/none/cancel"):
        answer: Any = await (api.post(path) if path.endswith("cancel") else api.get(path))
        problem(answer, 404, "batch-not-found")
    problem(await api.get("/v1/batches", params={"limit": 0}), 422, "invalid-input")


async def test_a_batch_is_cancelled_with_what_waits(api: httpx.AsyncClient, redis_url: str) -> None:
    with DelayQ(redis_url) as delayq:
        specs = [JobSpec(name="price.set", id=f"m{n}", queue="orders", batch="b1") for n in range(3)]
        members = [Link(job=msgspec.Raw(prepare(spec, delayq.options, 0).envelope)) for spec in specs]
        delayq.pause("orders")
        opened = delayq.batches.open(Plan(id="b1", name="prices", owner="", members=members))
        assert opened.pending == 3
    shown = (await api.get("/v1/batches/b1")).json()
    assert [one["id"] for one in shown["pending_members"]] == ["m0", "m1", "m2"]
    ended = await api.post("/v1/batches/b1/cancel", json={"reason": "wrong prices"})
    assert (ended.json()["skipped"], ended.json()["pending"]) == (3, 0)
    [deed] = (await api.get("/v1/audit")).json()["deeds"]
    assert (deed["what"], deed["on"], deed["reason"]) == ("batch cancel", "b1", "wrong prices")
