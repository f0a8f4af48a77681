"""Alive, ready, and why not."""

from __future__ import annotations

import time

import httpx

from delayq import DelayQ
from delayq.core.views import QueueStats
from delayq.http.health import complaints
from tests.support.web import problem, web


async def test_an_empty_delayq_is_ready(api: httpx.AsyncClient) -> None:
    assert (await api.get("/livez")).json() == {"alive": True}
    assert (await api.get("/readyz")).json() == {"ready": True, "why": []}
    assert (await api.get("/healthz")).status_code == 200


async def test_without_redis_it_lives_and_is_not_ready() -> None:
    began = time.monotonic()
    async with web("redis://127.0.0.1:1") as api:
        assert (await api.get("/livez")).status_code == 200
        answer = await api.get("/readyz")
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert answer.json()["ready"] is False
        refused = problem(await api.get("/v1/queues"), 503, "backend-unavailable")
        assert "127.0.0.1:1" in refused["detail"]
    assert time.monotonic() - began < 60


async def test_a_mover_that_never_was_makes_it_unready(api: httpx.AsyncClient, redis_url: str) -> None:
    with DelayQ(redis_url) as delayq:
        delayq.schedule("order.close", delay="1h", queue="orders")
    answer = await api.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["why"] == ["No mover ever looked at the queue orders."]


def stats(**more: int | None) -> QueueStats:
    said = {"scheduled": 1, "ready": 0, "reserved": 0, "failed": 0, "completed": 0, "paused_until_ms": None}
    said |= {"overdue_oldest_ms": 0, "lease_ms": 30_000, "mover_tick_ms": 1_000_000, "now_ms": 1_000_500, **more}
    return QueueStats(queue="orders", counters={}, **said)  # type: ignore[arg-type]


def test_what_is_wrong_with_a_queue() -> None:
    assert complaints(stats(), 60_000) == []
    assert complaints(stats(now_ms=1_042_000), 60_000) == ["No mover looked at the queue orders for 42 s."]
    assert complaints(stats(overdue_oldest_ms=61_000), 60_000) == ["The oldest job of orders is overdue by 61 s."]
    assert complaints(stats(now_ms=1_042_000, overdue_oldest_ms=61_000, paused_until_ms=0), 60_000) == []
    assert complaints(stats(now_ms=1_042_000, scheduled=0), 60_000) == []


def test_a_new_queue_is_as_well_off_as_its_neighbours() -> None:
    new = stats(now_ms=1_042_000, mover_tick_ms=0)
    assert complaints(new, 60_000, looked_ms=1_041_500) == []
    [said] = complaints(new, 60_000, looked_ms=1_000_000)
    assert said == "No mover ever looked at the queue orders."


def test_a_new_queue_that_no_mover_serves_is_told_by_its_jobs() -> None:
    due = {"now_ms": 1_042_000, "mover_tick_ms": 0, "overdue_oldest_ms": 11_000}
    [said] = complaints(stats(**due), 60_000, looked_ms=1_041_500)
    assert said == "No mover ever looked at the queue orders."
    assert complaints(stats(**due, scheduled=0, ready=1), 60_000, looked_ms=1_041_500) == []
