"""A failed job is retried with another payload, and any job is copied."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from delayq import AsyncDelayQ, Conflict, DelayQ, JobNotFound, State
from delayq.core.errors import InvalidPayload, JobNotFailed
from delayq.core.options import Options
from delayq.redis.client import Client
from delayq.redis.connect import Connector
from delayq.redis.hand_verbs import CLONE_OF
from tests.support.failing import fail_job
from tests.support.keys import ring
from tests.support.pages import read, send
from tests.support.web import problem, web


@pytest.fixture
def q(redis_url: str) -> Iterator[DelayQ]:
    with DelayQ(redis_url) as client:
        yield client


def data(q: DelayQ, job_id: str) -> object:
    info = q.get(job_id, queue="orders")
    assert info is not None
    return info.data


def test_a_retry_takes_another_payload(q: DelayQ, redis_url: str) -> None:
    fail_job(q, "a", "no")
    assert q.retry("a", queue="orders", data={"order_id": 43}).outcome == "scheduled"
    assert data(q, "a") == {"order_id": 43}
    with pytest.raises(JobNotFailed):
        q.retry("a", queue="orders", data={"order_id": 44})
    assert data(q, "a") == {"order_id": 43}
    fail_job(q, "b", "no", queue="mail")

    async def null() -> None:
        async with AsyncDelayQ(redis_url) as other:
            await other.retry("b", queue="mail", data=None)

    asyncio.run(null())
    info = q.get("b", queue="mail")
    assert info is not None
    assert info.envelope is not None
    assert bytes(info.envelope.data) == b"null"


def test_what_cannot_be_sent_changes_nothing(q: DelayQ) -> None:
    fail_job(q, "a", "no")
    before = data(q, "a")
    for wrong in (object(), float("nan"), "x" * (q.options.max_payload + 1), b"{no json"):
        with pytest.raises(InvalidPayload):
            q.retry("a", queue="orders", data=wrong)
    info = q.get("a", queue="orders")
    assert info is not None
    assert (info.state, info.data) == (State.FAILED, before)


def test_a_clone_is_a_job_of_its_own(q: DelayQ) -> None:
    q.schedule("order.close", {"n": 1}, id="a", queue="orders", delay="1h", unique="k", tries=3, tags=["vip"])
    ref = q.clone("a", queue="orders", delay="2h")
    info = q.get(ref.id, queue="orders")
    assert info is not None
    assert info.envelope is not None
    assert (info.name, info.data, info.envelope.tries, info.envelope.tags) == ("order.close", {"n": 1}, 3, ["vip"])
    assert (info.envelope.unique, info.envelope.headers) == (None, {CLONE_OF: "a"})
    assert q.clone("a", queue="orders", data={"n": 2}, id="c", delay="1h").id == "c"
    assert data(q, "c") == {"n": 2}
    with pytest.raises(Conflict):
        q.clone("a", queue="orders", id="c")
    with pytest.raises(JobNotFound):
        q.clone("nothing", queue="orders")


async def test_the_http_api_edits_and_clones(redis_url: str, q: DelayQ) -> None:
    fail_job(q, "a", "no")
    async with web(redis_url) as api:
        answer = await api.post("/v1/jobs/a/clone?queue=orders", json={"data": [1], "id": "c", "delay": "1h"})
        assert (answer.status_code, answer.json()["outcome"]) == (201, "created")
        assert answer.headers["location"] == "/v1/jobs/c?queue=orders"
        assert data(q, "c") == [1]
        problem(await api.post("/v1/jobs/a/clone?queue=orders", json={"id": "c"}), 409, "conflict")
        large = {"data": "x" * (q.options.max_payload + 1)}
        assert (await api.post("/v1/jobs/a/retry?queue=orders", json=large)).status_code in (413, 422)
        body = {"data": {"order_id": 7}, "reason": "the id was wrong"}
        assert (await api.post("/v1/jobs/a/retry?queue=orders", json=body)).status_code == 200
    assert data(q, "a") == {"order_id": 7}
    entry = q.audit_log.last()[0]
    assert (entry.what, entry.detail, entry.reason) == ("retry", "with another payload", "the id was wrong")


async def test_the_page_keeps_covered_values(redis_url: str, q: DelayQ) -> None:
    fail_job(q, "a", "no")
    async with web(redis_url) as api:
        page = await read(api, "/job?queue=orders&id=a")
        assert "t0p-s3cret" not in page.source
        edited = '{"token": "••••••", "order_id": 5}'
        done = await send(api, page, "/job/edit", data=edited, how="retry", reason="typo")
        assert "with the new payload" in done.text
        assert data(q, "a") == {"token": "t0p-s3cret", "order_id": 5}
        page = await read(api, "/job?queue=orders&id=a")
        before = len(q.audit_log.last())
        for wrong in ("{no json", '{"note": "••••••"}'):
            await send(api, page, "/job/edit", 400, data=wrong, how="clone")
        assert len(q.audit_log.last()) == before


def test_an_encrypted_payload_is_refused(connector: Connector) -> None:
    client = Client(connector, Options(queue="orders", keyring=ring("one")))
    client.schedule("pay", {"card": 1}, id="a", delay="1h", encrypted=True)
    client.archive("a")
    with pytest.raises(InvalidPayload, match="'a' in queue 'orders' is encrypted"):
        client.retry("a", data={"card": 2})
    with pytest.raises(InvalidPayload, match="'a' in queue 'orders' is encrypted"):
        client.clone("a")
    info = client.get("a")
    assert info is not None
    assert (info.state, info.data) == (State.FAILED, {"card": 1})
    client.retry("a")
