"""Keys that may make so many new queues: counted in Redis, over servers and restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import redis

from delayq import DelayQ
from delayq.core.api_keys import Scope, new_key
from tests.http.test_access import bearer, key_file
from tests.support.web import problem, web


def job(queue: str, **more: object) -> dict[str, object]:
    return {"name": "x", "delay": "1h", "queue": queue, **more}


async def post(api: httpx.AsyncClient, queue: str, token: str, **more: object) -> httpx.Response:
    return await api.post("/v1/jobs", json=job(queue, **more), headers=bearer(token))


async def test_a_key_makes_so_many_queues_and_no_more(redis_url: str, tmp_path: Path) -> None:
    two, none, any_number = (
        new_key(0, [Scope.WRITE], new_queues=2),
        new_key(0, [Scope.WRITE], new_queues=0),
        new_key(0, [Scope.WRITE]),
    )
    file = str(key_file(tmp_path, two=two, none=none, any_number=any_number))
    with DelayQ(redis_url) as q:
        q.schedule("x", delay="1h", queue="there")
    async with web(redis_url, api_keys_file=file) as api:
        for queue in ("there", "a", "a", "b", "there", "b"):
            assert (await post(api, queue, two[1])).status_code == 201, queue
        refused = problem(await post(api, "c", two[1]), 403, "forbidden")
        assert refused["detail"] == "This key may make 2 new queues and no more, and the queue c does not exist."
        problem(await post(api, "c", none[1]), 403, "forbidden")
        assert (await post(api, "a", none[1])).status_code == 201
        assert (await post(api, "c", any_number[1])).status_code == 201
        assert (await post(api, "c", two[1])).status_code == 201, "somebody else made it"
    with DelayQ(redis_url) as q:
        assert q.queues() == ["a", "b", "c", "there"]


async def test_servers_and_restarts_share_the_count(redis_url: str, tmp_path: Path) -> None:
    key, token = new_key(0, [Scope.WRITE], new_queues=3)
    file = str(key_file(tmp_path, one=(key, token)))
    async with web(redis_url, api_keys_file=file) as one, web(redis_url, api_keys_file=file) as two:
        answers = await asyncio.gather(*(post(api, f"q{n % 8}", token) for n in range(24) for api in (one, two)))
    codes = [answer.status_code for answer in answers]
    assert set(codes) == {201, 403}
    with DelayQ(redis_url) as q:
        made = q.queues()
    assert len(made) == 3, "no more, and no fewer: each was asked for several times"
    async with web(redis_url, api_keys_file=file) as again:
        problem(await post(again, "late", token), 403, "forbidden")
        assert (await post(again, made[0], token)).status_code == 201


async def test_what_is_refused_or_repeated_uses_up_nothing(
    redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    key, token = new_key(0, [Scope.WRITE], new_queues=1)
    async with web(redis_url, api_keys_file=str(key_file(tmp_path, one=(key, token)))) as api:
        assert (await post(api, "wrong", token, id="a b")).status_code == 422
        many = {"jobs": [job("one"), job("two")]}
        problem(await api.post("/v1/jobs/batch", json=many, headers=bearer(token)), 403, "forbidden")
        assert not redis_client.exists(f"delayq:new-queues:{key.id}", "delayq:queues")
        again = bearer(token) | {"idempotency-key": "k1"}
        for _ in range(2):
            assert (await api.post("/v1/jobs", json=job("one"), headers=again)).status_code == 201
        assert redis_client.hgetall(f"delayq:new-queues:{key.id}") == {b"1": b"one"}
        redis_client.srem("delayq:queues", "one")
        assert (await post(api, "one", token)).status_code == 201, "it has its number"


async def test_no_other_route_makes_one(redis_url: str, redis_client: redis.Redis, tmp_path: Path) -> None:
    key, token = new_key(0, [Scope.ADMIN], new_queues=0)
    async with web(redis_url, api_keys_file=str(key_file(tmp_path, one=(key, token)))) as api:
        for path in ("reservations", "pause", "resume"):
            problem(await api.post(f"/v1/queues/new/{path}", json={}, headers=bearer(token)), 403, "forbidden")
        for path in ("/v1/jobs/a/run-now?queue=new", "/v1/jobs/a/retry?queue=new", "/v1/jobs/a/clone?queue=new"):
            assert (await api.post(path, json={}, headers=bearer(token))).status_code == 404, path
        many = {"jobs": [job("new")]}
        problem(await api.post("/v1/jobs/batch", json=many, headers=bearer(token)), 403, "forbidden")
        page = await api.post("/queues/new/pause", data={}, headers=bearer(token))
        assert page.status_code >= 300
    assert not redis_client.exists("delayq:queues")
