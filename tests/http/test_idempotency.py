"""Idempotency-Key, and batches."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from delayq import DelayQ
from tests.support.web import problem

KEY = {"idempotency-key": "k1"}


async def test_the_same_request_is_done_once(api: httpx.AsyncClient, redis_url: str) -> None:
    job = {"name": "order.close", "data": 1, "delay": "1h"}
    first = await api.post("/v1/jobs", json=job, headers=KEY)
    again = await api.post("/v1/jobs", json=job, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")
    other = await api.post("/v1/jobs", json={**job, "data": 2}, headers=KEY)
    problem(other, 422, "key-reused")
    elsewhere = await api.post("/v1/jobs", json={**job, "queue": "mail"}, headers=KEY)
    problem(elsewhere, 422, "key-reused")
    assert (await api.post("/v1/jobs", json=job, headers={"idempotency-key": "k2"})).json()["id"] != first.json()["id"]
    with DelayQ(redis_url) as delayq:
        assert [(one.queue, one.scheduled) for one in delayq.stats()] == [("default", 2)]


async def test_a_job_that_is_gone_is_not_made_again(api: httpx.AsyncClient, redis_url: str) -> None:
    job = {"name": "order.close", "id": "mine", "delay": "1h"}
    first = await api.post("/v1/jobs", json=job, headers=KEY)
    await api.delete("/v1/jobs/mine")
    assert (await api.post("/v1/jobs", json=job, headers=KEY)).json() == first.json()
    assert (await api.get("/v1/jobs/mine")).status_code == 404


@pytest.mark.parametrize("many", [False, True])
async def test_an_id_that_was_taken_is_answered_alike_whatever_became_of_it(api: httpx.AsyncClient, many: bool) -> None:
    job = {"name": "order.close", "id": "mine", "delay": "1h"}
    path, body = ("/v1/jobs/batch", {"jobs": [job, {**job, "queue": "mail"}]}) if many else ("/v1/jobs", job)
    await api.post("/v1/jobs", json=job)
    first = await api.post(path, json=body, headers=KEY)
    assert '"outcome":"kept"' in first.text
    await api.post("/v1/jobs/mine/run-now")  # the job is elsewhere now
    moved = await api.post(path, json=body, headers=KEY)
    await api.delete("/v1/jobs/mine")  # its id is free
    gone = await api.post(path, json=body, headers=KEY)
    assert [(one.status_code, one.content) for one in (moved, gone)] == [(first.status_code, first.content)] * 2
    assert [one.headers.get("location") for one in (moved, gone)] == [first.headers.get("location")] * 2
    assert (moved.headers["idempotent-replayed"], "idempotent-replayed" in first.headers) == ("true", False)
    assert (await api.get("/v1/jobs/mine")).status_code == 404
    problem(await api.post(path, json={**body, "on_conflict": "error"}, headers=KEY), 422, "key-reused")


async def test_a_refusal_is_told_again(api: httpx.AsyncClient) -> None:
    job = {"name": "order.close", "id": "mine", "delay": "1h", "on_conflict": "error"}
    await api.post("/v1/jobs", json=job)
    first = await api.post("/v1/jobs", json=job, headers=KEY)
    await api.delete("/v1/jobs/mine")
    again = await api.post("/v1/jobs", json=job, headers=KEY)
    assert (first.status_code, first.content) == (again.status_code, again.content)
    assert first.status_code == 409
    assert (await api.get("/v1/jobs/mine")).status_code == 404


async def test_fifty_that_keep_at_once_are_told_the_same(api: httpx.AsyncClient, redis_url: str) -> None:
    job = {"name": "order.close", "id": "mine", "delay": "1h"}
    await api.post("/v1/jobs", json=job)
    with DelayQ(redis_url) as delayq:
        asked = [api.post("/v1/jobs", json=job, headers=KEY) for _ in range(50)]
        answers, _ = await asyncio.gather(
            asyncio.gather(*asked), asyncio.to_thread(delayq.reschedule, "mine", delay="2h")
        )
    assert len({(answer.status_code, answer.text) for answer in answers}) == 1


async def test_fifty_at_once_are_one(api: httpx.AsyncClient, redis_url: str) -> None:
    job = {"name": "order.close", "delay": "1h"}
    answers = await asyncio.gather(*(api.post("/v1/jobs", json=job, headers=KEY) for _ in range(50)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.text for answer in answers}) == 1
    with DelayQ(redis_url) as delayq:
        assert [one.scheduled for one in delayq.stats()] == [1]


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_a_key_has_a_length(api: httpx.AsyncClient, key: str) -> None:
    answer = await api.post("/v1/jobs", json={"name": "a"}, headers={"idempotency-key": key})
    told = problem(answer, 422, "invalid-input")
    assert told["errors"][0]["pointer"] == "Idempotency-Key:"


async def batch(api: httpx.AsyncClient, jobs: list[Any], headers: dict[str, str] | None = None, **how: Any) -> Any:
    return await api.post("/v1/jobs/batch", json={"jobs": jobs, **how}, headers=headers)


async def test_a_batch(api: httpx.AsyncClient) -> None:
    jobs = [{"name": "mail.send", "data": n, "id": f"m{n}", "queue": ("a", "b")[n % 2]} for n in range(1_000)]
    made = await batch(api, [{**job, "delay": "1h"} for job in jobs])
    assert made.status_code == 201
    assert made.json()["outcomes"] == {"created": 1000}
    assert [one["id"] for one in made.json()["jobs"]] == [f"m{n}" for n in range(1_000)]
    again = await batch(api, jobs[:3])
    assert (again.status_code, again.json()["outcomes"]) == (200, {"kept": 3})
    refused = await batch(api, [jobs[0], {"name": "new", "id": "new", "delay": "1h"}], on_conflict="error")
    assert (refused.status_code, refused.json()["outcomes"]) == (201, {"conflict": 1, "created": 1})


async def test_a_batch_is_checked_before_anything_is_sent(api: httpx.AsyncClient) -> None:
    good = {"name": "mail.send", "delay": "1h"}
    told = problem(await batch(api, [good, good, {**good, "delay": "soon"}]), 422, "invalid-duration")
    assert told["errors"][0]["pointer"] == "#/jobs/2/delay"
    told = problem(await batch(api, [good, {"name": "a", "tries": "x"}]), 422, "invalid-input")
    assert told["errors"][0]["pointer"] in ("#/jobs/1/tries", "#/jobs/.../tries")
    problem(await batch(api, [good] * 1_001), 422, "invalid-input")
    problem(await batch(api, []), 422, "invalid-input")
    assert (await api.get("/v1/queues")).json() == {"queues": [], "next": None}


async def test_a_batch_under_a_key(api: httpx.AsyncClient, redis_url: str) -> None:
    jobs = [{"name": "mail.send", "delay": "1h", "queue": queue} for queue in ("a", "b", "a")]
    first = await batch(api, jobs, KEY)
    again = await batch(api, jobs, KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    problem(await batch(api, jobs[:2], KEY), 422, "key-reused")
    with DelayQ(redis_url) as delayq:
        assert [(one.queue, one.scheduled) for one in delayq.stats()] == [
            ("a", 2),
            ("b", 1),
        ]
