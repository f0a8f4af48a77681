"""Lists, their filters and cursors; and many jobs at once."""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from delayq import DelayQ
from delayq.core.api_keys import Scope, new_key
from delayq.http import many
from tests.http.test_access import bearer, key_file
from tests.support.failing import fail_job
from tests.support.job_types import report
from tests.support.web import problem, web


@pytest.fixture
def jobs(redis_url: str) -> list[str]:
    """30 jobs in two queues: every third has a tag, every second another name."""
    with DelayQ(redis_url) as delayq:
        delayq.schedule_many(
            {
                "name": ("order.close", "mail.send")[n % 2],
                "id": f"j{n:02}",
                "queue": ("a", "b")[n // 20],
                "at": f"2027-01-01T00:00:{n:02}Z",
                "tags": ["vip"] if n % 3 == 0 else None,
            }
            for n in range(30)
        )
        delayq.schedule("order.close", id="now", queue="b")
    return [f"j{n:02}" for n in range(30)] + ["now"]


async def every(api: httpx.AsyncClient, path: str = "/v1/jobs", **query: Any) -> list[str]:
    """The ids of all pages, by the Link of each."""
    found: list[str] = []
    answer = await api.get(path, params=query)
    while True:
        assert answer.status_code == 200, answer.text
        found += [job["id"] for job in answer.json()["jobs"]]
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            assert "link" not in answer.headers
            return found
        link = answer.headers["link"]
        assert link.endswith('>; rel="next"')
        answer = await api.get(link[1:].partition(">")[0])


@pytest.mark.parametrize("limit", [1, 7, 500])
async def test_every_job_once(api: httpx.AsyncClient, jobs: list[str], limit: int) -> None:
    assert await every(api, limit=limit) == jobs


async def test_filters(api: httpx.AsyncClient, jobs: list[str]) -> None:
    assert await every(api, queue="b", limit=3) == [*jobs[20:30], "now"]
    assert await every(api, queue="b", state="ready") == ["now"]
    assert await every(api, state=["failed", "completed"]) == []
    assert await every(api, name="mail.*", queue="a", limit=4) == jobs[1:20:2]
    assert await every(api, tag="vip", limit=2) == jobs[:30:3]
    span = {"due_from": "2027-01-01T00:00:05Z", "due_to": "2027-01-01T00:00:08Z"}
    assert await every(api, **span, limit=2) == jobs[5:8]
    assert await every(api, **span, name="order.*") == [jobs[6]]


async def test_untouched_jobs_are_neither_skipped_nor_doubled(
    api: httpx.AsyncClient, jobs: list[str], redis_url: str
) -> None:
    page = (await api.get("/v1/jobs", params={"queue": "a", "limit": 5})).json()
    with DelayQ(redis_url) as delayq:
        for gone in ("j00", "j04", "j05"):
            delayq.cancel(gone, queue="a")
        delayq.schedule("order.close", id="early", queue="a", at="2026-12-31T00:00:00Z")
    rest = await every(api, queue="a", limit=5, cursor=page["next_cursor"])
    assert rest == jobs[6:20]


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "%00",
        "ü",
        "A" * 1_999,
        base64.urlsafe_b64encode(b'["q","a","ready","; FLUSHALL"]').decode(),
        base64.urlsafe_b64encode(b'["q","a","scheduled"]').decode(),
        base64.urlsafe_b64encode(b"[" * 100).decode(),
    ],
)
async def test_a_cursor_of_somebody_elses_is_refused(api: httpx.AsyncClient, cursor: str) -> None:
    told = problem(await api.get("/v1/jobs", params={"cursor": cursor}), 422, "invalid-input")
    assert told["errors"][0]["pointer"] == "?cursor"


async def test_a_cursor_belongs_to_its_question(api: httpx.AsyncClient, jobs: list[str]) -> None:
    cursor = (await api.get("/v1/jobs", params={"limit": 1, "name": "order.*"})).json()["next_cursor"]
    told = problem(await api.get("/v1/jobs", params={"limit": 1, "cursor": cursor}), 422, "invalid-input")
    assert "other filters" in told["detail"]
    place = base64.urlsafe_b64decode(cursor + "==").replace(b'"scheduled"', b'"ready"')
    forged = base64.urlsafe_b64encode(place).decode()
    asked: dict[str, Any] = {"limit": 1, "name": "order.*", "cursor": forged}
    problem(await api.get("/v1/jobs", params=asked), 422, "invalid-input")


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"limit": 0}, "?limit"),
        ({"limit": 501}, "?limit"),
        ({"limit": "9" * 30}, "?limit"),
        ({"limit": "1.5"}, "?limit"),
        ({"state": "gone"}, "?state"),
        ({"queue": "a b"}, "?queue"),
        ({"due_from": "soon"}, "?due_from"),
        ({"due_to": "2026-01-01"}, "?due_to"),
        ({"name": ""}, "?name"),
        ({"tag": "x" * 256}, "?tag"),
        ({"stat": "failed"}, "?stat"),
        ({"queue": ["a", "b"]}, "?queue"),
    ],
)
async def test_a_filter_is_checked(api: httpx.AsyncClient, query: dict[str, Any], pointer: str) -> None:
    answer = await api.get("/v1/jobs", params=query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)


async def bulk(api: httpx.AsyncClient, action: str, chosen: dict[str, Any], **more: Any) -> httpx.Response:
    return await api.post("/v1/jobs/bulk", json={"action": action, "filter": chosen, **more})


async def test_counted_and_then_done(api: httpx.AsyncClient, jobs: list[str], redis_url: str) -> None:
    vip = {"queue": "a", "tag": "vip"}
    counted = (await bulk(api, "cancel", vip, dry_run=True)).json()
    assert counted == {"action": "cancel", "dry_run": True, "matched": 7, "exact": True}
    assert (await bulk(api, "cancel", {"queue": "a"}, dry_run=True)).json()["matched"] == 20
    refused = problem(await bulk(api, "cancel", vip, expect=6), 409, "conflict")
    assert refused["matched"] == 7
    done = (await bulk(api, "cancel", vip, expect=7, reason="no more vips")).json()
    assert done == {"action": "cancel", "dry_run": False, "outcomes": {"cancelled": 7}, "more": False}
    moved = (await bulk(api, "reschedule", {"queue": "a"}, delay="1h", limit=4)).json()
    assert (moved["outcomes"], moved["more"]) == ({"rescheduled": 4}, True)
    ran = (await bulk(api, "run-now", {"queue": "b", "states": ["scheduled"]})).json()
    assert ran["outcomes"] == {"ready": 10}
    with DelayQ(redis_url) as delayq:
        first = delayq.audit_log.last()[-1]
        assert (first.what, first.target, first.reason, first.door) == ("bulk cancel", "a", "no more vips", "api")
        assert first.detail == "queue a, tag vip"


async def test_waiting_jobs_are_archived_for_a_reason(api: httpx.AsyncClient, jobs: list[str], redis_url: str) -> None:
    vip = {"queue": "a", "tag": "vip"}
    assert (await bulk(api, "archive", vip, dry_run=True)).json()["matched"] == 7
    done = (await bulk(api, "archive", vip, expect=7, reason="the shop is closed")).json()
    assert done == {"action": "archive", "dry_run": False, "outcomes": {"archived": 7}, "more": False}
    with DelayQ(redis_url) as delayq:
        failed = [delayq.get(one.id, queue="a") for one in delayq.iter_failed("a")]
        assert [one.failure.message for one in failed if one and one.failure] == ["the shop is closed"] * 7
        last = delayq.audit_log.last()[0]
        assert (last.what, last.target, last.reason, last.door) == ("bulk archive", "a", "the shop is closed", "api")


def test_what_was_left_as_it_is_does_not_count_as_done() -> None:
    left = Counter({"running": 1, "finished": 2, "failed": 3, "unknown": 4, "refused": 5, "payload lost": 6})
    assert many.done(left) == 0
    assert many.done(left + Counter({"cancelled": 1, "archived": 1})) == 2


@pytest.mark.parametrize(
    ("action", "chosen", "more", "pointer"),
    [
        ("explode", {"queue": "a"}, {}, "#/action"),
        ("cancel", {}, {}, "#/filter"),
        ("cancel", {"queue": "a b"}, {}, "#/filter/queue"),
        ("cancel", {"queue": "a", "states": ["failed"]}, {}, "#/filter/states"),
        ("archive", {"queue": "a", "states": ["failed"]}, {}, "#/filter/states"),
        ("archive", {"queue": "a"}, {"delay": "1h"}, "#/delay"),
        ("retry", {"queue": "a", "states": ["gone"]}, {}, "#/filter/states"),
        ("reschedule", {"queue": "a"}, {}, "#/delay"),
        ("cancel", {"queue": "a"}, {"delay": "1h"}, "#/delay"),
        ("cancel", {"queue": "a", "due_from": "x"}, {}, "#/filter/due_from"),
        ("cancel", {"queue": "a"}, {"limit": 1_001}, "#/limit"),
        ("cancel", {"queue": "a", "nam": "x"}, {}, "#/filter/nam"),
    ],
)
async def test_a_bulk_action_is_checked(
    api: httpx.AsyncClient, action: str, chosen: dict[str, Any], more: dict[str, Any], pointer: str
) -> None:
    answer = await bulk(api, action, chosen, **more)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)


async def test_failed_jobs_by_error_and_one_group_retried(api: httpx.AsyncClient, redis_url: str) -> None:
    with DelayQ(redis_url) as q:
        for job_id, message in (("a", "no stock of 41"), ("b", "no stock of 7"), ("c", "no money")):
            fail_job(q, job_id, message)
    told = (await api.get("/v1/failed/groups?queue=orders")).json()
    assert (told["looked"], told["exact"], told["others"]) == (3, True, 0)
    assert [(one["message"], one["count"]) for one in told["groups"]] == [("no stock of #", 2), ("no money", 1)]
    signature = told["groups"][0]["signature"]
    assert (await api.get("/v1/failed/groups?limit=1")).json()["others"] == 1
    listed = (await api.get(f"/v1/failed?queue=orders&signature={signature}")).json()
    assert [one["id"] for one in listed["jobs"]] == ["a", "b"]
    bulk = {"action": "retry", "filter": {"queue": "orders", "signature": signature}, "reason": "stock is back"}
    assert (await api.post("/v1/jobs/bulk", json={**bulk, "dry_run": True})).json()["matched"] == 2
    assert (await api.post("/v1/jobs/bulk", json=bulk)).json()["outcomes"] == {"scheduled": 2}
    assert [one["id"] for one in (await api.get("/v1/failed?queue=orders")).json()["jobs"]] == ["c"]
    for action, states in (("cancel", None), ("forget", ["completed"])):
        wrong = {"action": action, "filter": {"queue": "orders", "signature": signature, "states": states}}
        problem(await api.post("/v1/jobs/bulk", json=wrong), 422, "invalid-input")
    assert (await api.get("/v1/failed?signature=nonsense")).status_code == 422


@pytest.fixture
def ran(redis_url: str) -> None:
    """What workers reported of three job names on two queues."""
    with DelayQ(redis_url) as q:
        report(q, "orders", "order.close", [10.0] * 98 + [5_000.0] * 2, done=90, released=6, failed=4)
        report(q, "mail", "mail.send", [20.0] * 10, done=10)
        report(q, "orders", "mail.send", [20.0], snoozed=1)
        report(q, "orders", "report", [60_000.0], failed=1)


@pytest.mark.usefixtures("ran")
async def test_metrics_by_job_name(api: httpx.AsyncClient) -> None:
    told = (await api.get("/v1/job-types")).json()
    assert told["queue"] is None
    assert [one["name"] for one in told["job_types"]] == ["order.close", "mail.send", "report"]
    close, mail, _ = told["job_types"]
    counts = ("attempts", "done", "retried", "failed", "other", "failure_rate", "queues")
    assert [close[name] for name in counts] == [100, 90, 6, 4, 0, 0.1, ["orders"]]
    assert [mail[name] for name in counts] == [11, 10, 0, 0, 1, 0.0, ["mail", "orders"]]
    assert close["p50_ms"] == pytest.approx(10, rel=0.1)
    assert close["p99_ms"] == pytest.approx(5_000, rel=0.1)
    assert (close["mean_ms"], close["took_ms"]) == (109.8, 10_980)
    minutes = (told["now_ms"] - told["since_ms"]) / 60_000
    assert 24 * 60 <= minutes < 25 * 60
    assert close["per_minute"] == pytest.approx(100 / minutes, abs=0.001)


@pytest.mark.usefixtures("ran")
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("sort=p99", ["report", "order.close", "mail.send"]),
        ("sort=p50", ["report", "mail.send", "order.close"]),
        ("sort=failures", ["order.close", "report", "mail.send"]),
        ("sort=failure-rate&days=90", ["report", "order.close", "mail.send"]),
        ("queue=mail&hours=1", ["mail.send"]),
        ("queue=nothing", []),
    ],
)
async def test_orders_and_windows_of_job_names(api: httpx.AsyncClient, query: str, names: list[str]) -> None:
    told = (await api.get(f"/v1/job-types?{query}")).json()
    assert [one["name"] for one in told["job_types"]] == names


@pytest.mark.parametrize(
    "query", ["hours=0", "hours=25", "days=0", "days=91", "hours=1&days=1", "sort=name", "queue=%20", "window=24h"]
)
async def test_a_wrong_window_of_job_names_is_refused(api: httpx.AsyncClient, query: str) -> None:
    answer = await api.get(f"/v1/job-types?{query}")
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"]


@pytest.mark.usefixtures("ran")
async def test_a_key_for_some_queues_sees_their_job_names(redis_url: str, tmp_path: Path) -> None:
    key = new_key(0, [Scope.READ], queues=["mail"])
    async with web(redis_url, api_keys_file=str(key_file(tmp_path, sees=key))) as api:
        headers = bearer(key[1])
        told = (await api.get("/v1/job-types", headers=headers)).json()
        assert [(one["name"], one["queues"], one["attempts"]) for one in told["job_types"]] == [
            ("mail.send", ["mail"], 10)
        ]
        problem(await api.get("/v1/job-types?queue=orders", headers=headers), 403, "forbidden")
        problem(await api.get("/v1/job-types"), 401, "unauthorized")
