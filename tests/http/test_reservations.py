"""The pull interface: reserved, renewed, settled; and taken back from who does neither."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from delayq import DelayQ
from delayq.core.states import State
from delayq.drivers.redis_streams import RedisStreams
from tests.support.waiting import wait_until
from tests.support.web import problem


@pytest.fixture
def q(redis_url: str) -> Iterator[DelayQ]:
    with DelayQ(redis_url) as q:
        yield q


async def reserve(api: httpx.AsyncClient, queue: str = "orders", **ask: Any) -> list[dict[str, Any]]:
    answer = await api.post(f"/v1/queues/{queue}/reservations", json=ask)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["reservations"]
    return found


async def test_reserved_and_done(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", {"order_id": 42}, id="a", queue="orders", headers={"trace": "1"}, retention="1h")
    [one] = await reserve(api)
    assert (one["id"], one["data"], one["headers"], one["attempt"], one["tries"]) == (
        "a", {"order_id": 42}, {"trace": "1"}, 1, 5,
    )  # fmt: skip
    assert one["lease_ms"] == 30_000
    assert await reserve(api) == []
    renewed = await api.post(f"/v1/reservations/{one['token']}/renew")
    assert renewed.json() == {"lease_ms": 30_000, "stop": False}
    done = await api.post(f"/v1/reservations/{one['token']}/ack", json={"result": [1]})
    assert done.json() == {"id": "a", "queue": "orders", "outcome": "done"}
    info = q.get("a", queue="orders")
    assert info is not None
    assert (info.state, info.result) == (State.COMPLETED, [1])
    over = await api.post(f"/v1/reservations/{one['token']}/ack")
    assert problem(over, 409, "lease-lost")["state"] == "completed"
    q.forget(["a"], queue="orders")
    for verb in ("ack", "renew", "release"):
        problem(await api.post(f"/v1/reservations/{one['token']}/{verb}"), 410, "reservation-over")


async def test_a_long_poll_ends_with_the_job(api: httpx.AsyncClient, q: DelayQ) -> None:
    polling = asyncio.ensure_future(reserve(api, wait="50s", count=5))
    while not (await api.get("/livez")).is_success:
        pass
    q.schedule("order.close", id="a", queue="orders")  # the queue was not even known before
    assert [one["id"] for one in await polling] == ["a"]


async def test_who_waits_is_served_in_turn_and_each_job_goes_to_one(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", id="first", queue="orders")
    assert len(await reserve(api)) == 1
    polling = [asyncio.ensure_future(reserve(api, wait="50s", count=2)) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.to_thread(q.schedule_many, [{"name": "x", "id": f"j{n}", "queue": "orders"} for n in range(10)])
    found = [one["id"] for ones in await asyncio.gather(*polling) for one in ones]
    found += [one["id"] for one in await reserve(api, count=10)]
    assert sorted(found) == [f"j{n}" for n in range(10)]


async def test_put_off_costs_no_attempt(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", id="a", queue="orders")
    [one] = await reserve(api)
    put = await api.post(f"/v1/reservations/{one['token']}/release", json={"delay": "1h"})
    assert put.json()["outcome"] == "snoozed"
    info = q.get("a", queue="orders")
    assert info is not None
    assert (info.state, info.attempts) == (State.SCHEDULED, 0)


async def test_failures(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", id="a", queue="orders", tries=2)
    [one] = await reserve(api)
    broken = {"message": "the bank said no", "type": "BankError", "delay": "0s"}
    assert (await api.post(f"/v1/reservations/{one['token']}/fail", json=broken)).json()["outcome"] == "released"
    with contextlib.closing(RedisStreams(q.connector, q.options)):
        q.run_now("a", queue="orders")
        [two] = await reserve(api)
        assert (two["attempt"], two["fence"] > one["fence"]) == (2, True)
        assert (await api.post(f"/v1/reservations/{two['token']}/fail", json=broken)).json()["outcome"] == "failed"
    info = q.get("a", queue="orders")
    assert info is not None
    assert info.failure is not None
    assert (info.state, info.failure.type, info.failure.message) == (State.FAILED, "BankError", "the bank said no")
    [listed] = (await api.get("/v1/failed")).json()["jobs"]
    assert (listed["id"], listed["error"]["type"]) == ("a", "BankError")
    assert (await api.post("/v1/jobs/a/retry", params={"queue": "orders"})).json()["state"] == "scheduled"


async def test_failed_for_good(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", id="a", queue="orders", tries=5)
    [one] = await reserve(api)
    broken = {"message": "no such order", "final": True}
    assert (await api.post(f"/v1/reservations/{one['token']}/fail", json=broken)).json()["outcome"] == "failed"
    assert (await api.post("/v1/jobs/a/forget", params={"queue": "orders"})).json()["outcome"] == "forgotten"


async def test_a_lease_that_ended_is_lost(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.queue_set("orders", lease="200ms")
    q.schedule("order.close", id="a", queue="orders")
    [one] = await reserve(api)
    driver = RedisStreams(q.connector, q.options)
    await asyncio.to_thread(wait_until, lambda: driver.reclaim("orders").reclaimed, what="it is taken back")
    for verb in ("renew", "ack"):
        answer = await api.post(f"/v1/reservations/{one['token']}/{verb}")
        assert problem(answer, 409, "lease-lost")["state"] == "ready"
    [two] = await reserve(api)
    assert (two["id"], two["recoveries"], two["fence"] > one["fence"]) == ("a", 1, True)
    assert (await api.post(f"/v1/reservations/{two['token']}/ack")).status_code == 200


async def test_asked_to_stop(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", id="a", queue="orders")
    [one] = await reserve(api)
    problem(await api.delete("/v1/jobs/a", params={"queue": "orders"}), 409, "job-running")
    asked = await api.delete("/v1/jobs/a", params={"queue": "orders", "running": True})
    assert (asked.status_code, asked.json()["outcome"]) == (202, "running")
    assert (await api.post(f"/v1/reservations/{one['token']}/renew")).json()["stop"] is True
    broken = {"message": "stopped"}
    assert (await api.post(f"/v1/reservations/{one['token']}/fail", json=broken)).status_code == 200
    assert (await api.get("/v1/jobs/a", params={"queue": "orders"})).status_code == 404


async def test_what_may_not_start_is_not_handed_out(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", id="a", queue="orders", deadline="1h")
    raw = q.get("a", queue="orders")
    assert raw is not None
    q.cancel("a", queue="orders")
    late = raw.raw.replace(b'"deadline_ms":', b'"deadline_ms":1,"was":')
    q.push_raw(late.replace(b'"id":"a"', b'"id":"late"'), queue="orders")
    q.schedule("order.close", id="good", queue="orders")
    assert [one["id"] for one in await reserve(api, count=5)] == ["good"]
    info = q.get("late", queue="orders")
    assert info is not None
    assert info.state is State.FAILED


async def test_who_hangs_up_takes_nothing_along(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", id="a", queue="orders", delay="1h")
    polling = asyncio.ensure_future(reserve(api, wait="50s"))
    await asyncio.sleep(0)
    polling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await polling
    q.run_now("a", queue="orders")
    [one] = await reserve(api, wait="50s")
    assert (one["id"], one["recoveries"], one["attempt"]) == ("a", 0, 1)


@pytest.mark.parametrize(
    "token", ["x", "A" * 1_000, "W10", base64.urlsafe_b64encode(b'["a b","1-1","x"]').decode().rstrip("="),
              base64.urlsafe_b64encode(b'["a","; XACK","x"]').decode().rstrip("=")]
)  # fmt: skip
async def test_a_token_of_somebody_elses(api: httpx.AsyncClient, token: str) -> None:
    for verb in ("renew", "ack", "release"):
        told = problem(await api.post(f"/v1/reservations/{token}/{verb}"), 422, "invalid-input")
        assert told["errors"][0]["pointer"] == "/{token}"


@pytest.mark.parametrize(
    ("ask", "pointer"),
    [({"count": 0}, "#/count"), ({"count": 101}, "#/count"), ({"wait": "61s"}, "#/wait"), ({"wait": 5}, "#/wait"),
     ({"wait": "x"}, "#/wait"), ({"batch": 1}, "#/batch")],
)  # fmt: skip
async def test_what_is_asked_is_checked(api: httpx.AsyncClient, ask: dict[str, Any], pointer: str) -> None:
    answer = await api.post("/v1/queues/orders/reservations", json=ask)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)


async def test_a_token_that_the_api_did_not_sign_settles_nothing(api: httpx.AsyncClient, q: DelayQ) -> None:
    """`GET /v1/jobs/{id}` shows the entry, so that the words of a token are no secret."""
    q.schedule("order.close", id="a", queue="orders")
    [one] = await reserve(api)
    words = base64.urlsafe_b64encode(json.dumps(["orders", one["fence"], "a"]).encode()).decode().rstrip("=")
    signature = one["token"].partition(".")[2]
    for forged in (words, f"{words}.", f"{words}.x", f"{words}.{signature[::-1]}"):
        problem(await api.post(f"/v1/reservations/{forged}/ack"), 422, "invalid-input")
    assert (await api.post(f"/v1/reservations/{one['token']}/ack")).status_code == 200
