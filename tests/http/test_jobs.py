"""One job over HTTP: made, looked at, moved, started, stopped; and everything that is refused."""

from __future__ import annotations

from contextlib import closing
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from delayq import DelayQ
from delayq.core.options import Options
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis.connect import Connector
from tests.support.servers import connect
from tests.support.web import problem, web

JSON = {"content-type": "application/json"}


async def post(api: httpx.AsyncClient, **job: Any) -> httpx.Response:
    return await api.post("/v1/jobs", json={"name": "order.close", **job})


async def test_a_job_is_made(api: httpx.AsyncClient, redis_url: str) -> None:
    made = await post(api, data={"order_id": 42}, delay="15m", id="order-42", queue="orders", tags=["vip"], tries=3)
    assert made.status_code == 201
    assert made.headers["location"] == "/v1/jobs/order-42?queue=orders"
    body = made.json()
    assert set(body) == {"id", "name", "queue", "state", "due_ms", "due", "outcome"}
    assert (body["id"], body["state"], body["outcome"]) == ("order-42", "scheduled", "created")
    assert body["due"].endswith("Z")
    again = await post(api, id="order-42", queue="orders")
    assert (again.status_code, again.json()["outcome"], again.json()["due_ms"]) == (200, "kept", body["due_ms"])
    shown = (await api.get(made.headers["location"])).json()
    assert (shown["data"], shown["tags"], shown["tries"]) == ({"order_id": 42}, ["vip"], 3)
    with DelayQ(redis_url) as delayq:
        info = delayq.get("order-42", queue="orders")
        assert info is not None
        assert info.data == {"order_id": 42}


async def test_unique_for_locks_a_key_or_the_payload_for_a_time(api: httpx.AsyncClient) -> None:
    first = (await post(api, data={"n": 1}, unique_for="10m", delay="1h")).json()
    assert (await api.delete(f"/v1/jobs/{first['id']}")).status_code == 200
    again = await post(api, data={"n": 1}, unique_for="10m", delay="1h")
    assert (again.status_code, again.json()["outcome"], again.json()["id"]) == (200, "kept", first["id"])
    assert (await post(api, data={"n": 2}, unique_for="10m", delay="1h")).status_code == 201
    assert (await post(api, data={"n": 2}, unique="k", unique_for="10m", delay="1h")).status_code == 201
    assert (await post(api, data={"n": 3}, unique="k", unique_for="10m", delay="1h")).status_code == 200
    problem(await post(api, unique_for="0s"), 422, "invalid-input")


async def test_a_waiting_job_is_archived(api: httpx.AsyncClient) -> None:
    await post(api, id="a", delay="1h")
    done = await api.post("/v1/jobs/a/archive", json={"reason": "the shop is closed"})
    assert (done.status_code, done.json()) == (200, {"id": "a", "queue": "default", "outcome": "archived"})
    shown = (await api.get("/v1/jobs/a")).json()
    assert (shown["state"], shown["error"]["message"]) == ("failed", "the shop is closed")
    problem(await api.post("/v1/jobs/a/archive"), 409, "job-has-failed")
    problem(await api.post("/v1/jobs/nobody/archive"), 404, "job-not-found")
    deeds = (await api.get("/v1/audit", params={"limit": 9})).json()["deeds"]
    assert ("archive", "default a", "the shop is closed") in [(one["what"], one["on"], one["reason"]) for one in deeds]


async def test_a_payload_travels_as_the_bytes_it_is(api: httpx.AsyncClient, redis_url: str) -> None:
    raw = b'{"n": 123456789012345678901234567890, "f": 1.10, "t": "\\u00e4"}'
    body = b'{"name": "order.close", "id": "raw", "data": ' + raw + b"}"
    assert (await api.post("/v1/jobs", content=body, headers=JSON)).status_code == 201
    with DelayQ(redis_url) as delayq:
        info = delayq.get("raw")
        assert info is not None
        assert info.envelope is not None
        assert bytes(info.envelope.data) == raw


async def test_a_life(api: httpx.AsyncClient) -> None:
    await post(api, id="a", delay="1h")
    moved = await api.patch("/v1/jobs/a", json={"delay": "2h"})
    assert (moved.status_code, moved.json()["outcome"]) == (200, "rescheduled")
    ready = await api.post("/v1/jobs/a/run-now")
    assert (ready.status_code, ready.json()["state"]) == (200, "ready")
    gone = await api.delete("/v1/jobs/a")
    assert (gone.status_code, gone.json()) == (200, {"id": "a", "queue": "default", "outcome": "cancelled"})
    for answer in (await api.get("/v1/jobs/a"), await api.delete("/v1/jobs/a"), await api.post("/v1/jobs/a/run-now")):
        said = problem(answer, 404, "job-not-found")
        assert "'a'" in said["detail"]
        assert "(?queue=)" in said["hint"], "the parameter of the API"


@pytest.mark.parametrize("job_id", ["a/b", "a/run-now", "50%", "%2F", "/x", "a?b#c", "~" * 255, "a:b@c"])
async def test_any_id_can_be_said(api: httpx.AsyncClient, job_id: str) -> None:
    made = await post(api, id=job_id, delay="1h")
    assert (await api.get(made.headers["location"])).json()["id"] == job_id
    path = f"/v1/jobs/{quote(job_id, safe='')}"
    assert (await api.post(f"{path}/run-now")).json()["id"] == job_id
    assert (await api.delete(path)).json()["outcome"] == "cancelled"


async def test_a_failed_job_is_retried_and_forgotten(api: httpx.AsyncClient, redis_url: str) -> None:
    await post(api, id="a")
    problem(await api.post("/v1/jobs/a/retry"), 409, "job-not-failed")
    problem(await api.post("/v1/jobs/a/forget"), 409, "job-not-failed")
    problem(await api.post("/v1/jobs/none/forget"), 404, "job-not-found")


async def test_conflicts(api: httpx.AsyncClient) -> None:
    await post(api, id="a", delay="1h")
    problem(await post(api, id="a", on_conflict="error"), 409, "conflict")
    replaced = await post(api, id="a", on_conflict="replace", data=7)
    assert (replaced.status_code, replaced.json()["outcome"]) == (200, "replaced")


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"delay": "15 minuets"}, "#/delay", "invalid-duration"),
    ({"delay": 15}, "#/delay", "invalid-input"),
    ({"delay": "-5m"}, "#/delay", "invalid-duration"),
    ({"delay": "1m", "at": "2026-01-01T00:00:00Z"}, "#", "invalid-input"),
    ({"at": "tomorrow"}, "#/at", "invalid-time"),
    ({"at": "2026-01-01T00:00:00"}, "#/at", "invalid-time"),
    ({"at": "2026-01-01T00:00:00", "tz": "Mars/Olympus"}, "#/at", "invalid-time"),
    ({"at": "9999-01-01T00:00:00Z"}, "#/at", "invalid-time"),
    ({"name": ""}, "#/name", "invalid-name"),
    ({"name": "a b"}, "#/name", "invalid-name"),
    ({"name": 5}, "#/name", "invalid-input"),
    ({"queue": "a{b}"}, "#/queue", "invalid-name"),
    ({"queue": "scheduled}:jobs"}, "#/queue", "invalid-name"),
    ({"id": "a b"}, "#/id", "invalid-name"),
    ({"id": "x" * 256}, "#/id", "invalid-name"),
    ({"tries": -1}, "#/tries", "invalid-input"),
    ({"tries": True}, "#/tries", "invalid-input"),
    ({"tries": 1e3}, "#/tries", "invalid-input"),
    ({"backoff": ["1s", "x"]}, "#/backoff", "invalid-duration"),
    ({"retention": "1mo"}, "#/retention", "invalid-duration"),
    ({"timeout": "5"}, "#/timeout", "invalid-duration"),
    ({"headers": {"a": 1}}, "#/headers", "invalid-input"),
    ({"tags": "vip"}, "#/tags", "invalid-input"),
    ({"on_conflict": "ignore"}, "#/on_conflict", "invalid-input"),
    ({"durability": "paper"}, "#/durability", "invalid-input"),
    ({"priority": 5}, "#/priority", "invalid-input"),
    ({"data": "x" * 300_000}, "#/data", "invalid-payload"),
    ({"max_exceptions": 0}, "#/max_exceptions", "invalid-input"),
    ({"fold": 7}, "#/fold", "invalid-input"),
]


@pytest.mark.parametrize(("job", "pointer", "kind"), BAD, ids=str)
async def test_what_is_wrong_is_named(api: httpx.AsyncClient, job: dict[str, Any], pointer: str, kind: str) -> None:
    told = problem(await post(api, **job), 422, kind)
    [wrong] = told["errors"]
    assert wrong["pointer"].startswith(pointer) if pointer != "#" else wrong["pointer"] == "#"
    assert wrong["detail"] in told["detail"] + "."
    assert (await api.get("/v1/queues")).json() == {"queues": [], "next": None}


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nope", b'{"name": "a",}', b"\xff", b'{"name": "\xff"}', b'{"name": "a", "data": NaN}', b"[]"]
)
async def test_what_is_no_json_of_that_shape(api: httpx.AsyncClient, body: bytes) -> None:
    answer = await api.post("/v1/jobs", content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    problem(answer, answer.status_code, "invalid-json" if answer.status_code == 400 else "invalid-input")
    assert answer.json()["errors"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"name": "a", "name": "b"}', "#/name"),
        (b'{"queue": "mine", "name": "a", "\\u0071ueue": "yours"}', "#/queue"),
        (b'{"name": "a", "data": {"x": [{"a:\\"b": ":", "y": 1e400, "a:\\"b": 2}]}}', '#/data/x/0/a:"b'),
    ],
)
async def test_a_member_stands_there_once(api: httpx.AsyncClient, body: bytes, pointer: str) -> None:
    for path, sent, at in (("/v1/jobs", body, "#"), ("/v1/jobs/batch", b'{"jobs": [%s]}' % body, "#/jobs/0")):
        said = problem(await api.post(path, content=sent, headers=JSON), 422, "invalid-input")
        assert said["errors"][0]["pointer"] == pointer.replace("#", at, 1)
    assert (await api.get("/v1/jobs")).json()["jobs"] == []


@pytest.mark.parametrize(
    ("payload", "status", "kind", "at"),
    [(b"1e999", 422, "invalid-payload", "/data"), (b"9" * 5_000 + b"e9", 422, "invalid-payload", "/data"),
     (b"[" + b"9" * 5_000 + b", 1e999]", 422, "invalid-payload", "/data"),
     (b'"\xff"', 400, "invalid-json", ""), (b'["\xff", 1e999]', 400, "invalid-json", "")],
    ids=["no number", "digits", "digits and no number", "no UTF-8", "neither"],
)  # fmt: skip
async def test_a_payload_that_nobody_could_read(
    api: httpx.AsyncClient, payload: bytes, status: int, kind: str, at: str
) -> None:
    body = b'{"name": "a", "data": %s}' % payload
    many = b'{"jobs": [{"name": "b", "data": 1}, %s]}' % body
    for path, sent, job in (("/v1/jobs", body, "#"), ("/v1/jobs/batch", many, "#/jobs/1")):
        said = problem(await api.post(path, content=sent, headers=JSON), status, kind)
        assert said["errors"][0]["pointer"] == (f"{job}{at}" if at else "#")
    assert (await api.get("/v1/jobs")).json()["jobs"] == []


async def test_a_payload_is_data_and_never_script(api: httpx.AsyncClient, redis_url: str) -> None:
    evil = "]]redis.call('FLUSHALL')--"
    await post(api, id="stays", delay="1h")
    made = await post(api, name=evil, id=evil, data=evil, tags=[evil], headers={evil: evil}, unique=evil)
    assert made.status_code == 201
    assert (await api.get(f"/v1/jobs/{quote(evil, safe='')}")).json()["data"] == evil
    assert (await api.get("/v1/jobs/stays")).status_code == 200


@pytest.mark.parametrize("query", ["queue=a%7B", "queue=", "quue=orders", "queue=a&nonsense=1"])
async def test_a_query_is_checked(api: httpx.AsyncClient, query: str) -> None:
    told = problem(await api.get(f"/v1/jobs/a?{query}"), 422, "invalid-input")
    assert told["errors"][0]["pointer"].startswith("?")


async def test_who_did_what_is_on_record(api: httpx.AsyncClient, redis_url: str) -> None:
    await post(api, id="a", delay="1h")
    await api.patch("/v1/jobs/a", json={"delay": "2h"})
    await api.delete("/v1/jobs/a")
    with DelayQ(redis_url) as delayq:
        deeds = [(deed.what, deed.target, deed.detail, deed.door) for deed in reversed(delayq.audit_log.last())]
    assert deeds == [("reschedule", "default a", "2h", "api"), ("cancel", "default a", "", "api")]


async def test_a_forwarded_queue_is_asked_by_both_names(redis_url: str) -> None:
    with DelayQ(redis_url) as before:
        for job_id in ("order-1", "order-2"):
            before.schedule("order.close", id=job_id, queue="old", delay="1h")
        before.schedule("order.close", id="order-2", queue="new", delay="1h")
        async with web(redis_url, forwards={"old": "new"}) as api:
            kept = await post(api, id="order-1", queue="old", delay="1h")
            assert (kept.status_code, kept.json()["outcome"], kept.json()["queue"]) == (200, "kept", "old")
            assert (await post(api, id="order-3", queue="old", delay="1h")).json()["queue"] == "new"
            for job_id in ("order-1", "order-2", "order-3"):
                gone = await api.delete(f"/v1/jobs/{job_id}?queue=old")
                assert gone.json()["outcome"] == "cancelled"
        left = [before.get(job_id, queue=queue) for job_id in ("order-1", "order-2") for queue in ("old", "new")]
        assert left == [None, None, None, None]


async def test_a_lost_payload_is_not_retried(api: httpx.AsyncClient, redis_url: str) -> None:
    await post(api, id="lost-1", delay="1h")
    with connect(redis_url) as plain:
        plain.hdel("delayq:{default}:jobs", "lost-1")
        plain.zadd("delayq:{default}:scheduled", {"lost-1": 1})
    with closing(Connector(redis_url)) as connector:
        RedisStreams(connector, Options()).promote("default")
    told = problem(await api.post("/v1/jobs/lost-1/retry"), 409, "payload-lost")
    assert "forget" in str(told).lower()
    bulk = await api.post("/v1/jobs/bulk", json={"action": "retry", "filter": {"queue": "default"}})
    assert bulk.json()["outcomes"] == {"payload lost": 1}, bulk.text
    assert (await api.get("/v1/jobs/lost-1")).json()["created_ms"] is None
