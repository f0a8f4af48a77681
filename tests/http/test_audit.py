"""The audit log: each deed has an outcome, whichever way it came in."""

from __future__ import annotations

from typing import Any

import httpx
import redis

from delayq import DelayQ
from delayq.core.audit import Deed
from delayq.redis.audit import PAGE
from tests.support.pages import confirm, read

REASON = "the shop is closed"


async def rows(api: httpx.AsyncClient) -> list[tuple[str, str, str]]:
    """The log over the API, the newest first: what, the outcome, and why it was refused."""
    deeds: list[dict[str, Any]] = (await api.get("/v1/audit")).json()["deeds"]
    return [(one["what"], one["outcome"], one["refusal"]) for one in deeds]


async def test_what_was_refused_is_not_told_as_done(api: httpx.AsyncClient, redis_url: str) -> None:
    with DelayQ(redis_url) as q:
        q.schedule("order.close", delay="1h", id="a")
    missing = "No job 'gone' is known in queue 'default'."
    assert (await api.patch("/v1/jobs/gone", json={"delay": "1h"})).status_code == 404
    assert (await api.delete("/v1/jobs/gone")).status_code == 404
    assert (await api.post("/v1/jobs/a/retry")).status_code == 409
    assert (await api.delete("/v1/jobs/a")).status_code == 200
    assert (await api.delete("/v1/queues/nowhere")).status_code == 404
    found = await rows(api)
    assert [(what, outcome) for what, outcome, _ in found] == [
        ("queue remove", "refused"),
        ("cancel", "done"),
        ("retry", "refused"),
        ("cancel", "refused"),
        ("reschedule", "refused"),
    ]
    assert found[1][2] == ""
    assert found[3][2] == found[4][2] == missing


async def test_a_bulk_action_that_reaches_no_job_is_refused(api: httpx.AsyncClient, redis_url: str) -> None:
    with DelayQ(redis_url) as q:
        q.schedule("order.close", delay="1h", id="a")
    body = {"action": "cancel", "filter": {"queue": "default"}}
    assert (await api.post("/v1/jobs/bulk", json=body)).json()["outcomes"] == {"cancelled": 1}
    assert await rows(api) == [("bulk cancel", "done", "")]


async def test_a_page_tells_what_became_of_a_deed(api: httpx.AsyncClient, redis_url: str) -> None:
    with DelayQ(redis_url) as q:
        q.schedule("order.close", delay="1h", id="a", queue="orders")
        page = await read(api, "/job?queue=orders&id=a")
        q.cancel("a", queue="orders")
        said = await confirm(api, page, "/job/cancel")
        assert "It was not cancelled" in said.text
        [entry] = q.audit_log.last()
        assert (entry.outcome, entry.refusal) == ("refused", "It was not cancelled: no such job is known any more.")
        q.schedule("order.close", delay="1h", id="b", queue="orders")
        await confirm(api, await read(api, "/job?queue=orders&id=b"), "/job/cancel")
        assert [one.outcome for one in q.audit_log.last()] == ["done", "refused"]
    log = await read(api, "/audit")
    assert "refused It was not cancelled: no such job is known any more." in log.text


async def test_nothing_is_done_that_is_not_on_record(
    api: httpx.AsyncClient, redis_url: str, redis_client: redis.Redis
) -> None:
    """A log that takes no entry keeps the deed from being done."""
    redis_client.set("delayq:audit", "somebody else's")
    with DelayQ(redis_url) as q:
        q.schedule("order.close", delay="1h", id="a")
        assert (await api.delete("/v1/jobs/a")).status_code >= 400
        assert q.get("a") is not None
    redis_client.flushall()


def test_a_deed_whose_end_nobody_wrote_down_is_unknown(redis_url: str) -> None:
    with DelayQ(redis_url) as q:
        q.audit_log.record(Deed("pause", "orders", REASON))
        [entry] = q.audit_log.last()
    assert (entry.outcome, entry.refusal, entry.reason) == ("unknown", "", REASON)


def test_outcomes_are_found_page_by_page(redis_url: str) -> None:
    """The end of a deed may stand on another page of the stream than the deed."""
    with DelayQ(redis_url) as q:
        first = q.audit_log.record(Deed("pause", "first"))
        for number in range(3):
            q.audit_log.record(Deed("pause", str(number)))
        for number in range(PAGE):
            q.audit_log.end(f"{number + 1}-1")
        q.audit_log.end(first, "no")
        entries = q.audit_log.last(4)
    assert [(one.target, one.outcome) for one in entries] == [
        ("2", "unknown"),
        ("1", "unknown"),
        ("0", "unknown"),
        ("first", "refused"),
    ]
