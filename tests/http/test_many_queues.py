"""Ten thousand queues: pages, probes and metrics stay bounded, in what they show and in what they ask Redis."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from delayq import AsyncDelayQ, DelayQ
from delayq.core.api_keys import Scope, new_key
from delayq.http import kept
from delayq.http.dashboard.overview import SHOWN as ROWS_OF_THE_OVERVIEW
from delayq.http.dashboard.queue_pages import PAGE
from delayq.metrics.exposition import OTHER
from delayq.redis.connect import Connector
from delayq.redis.finding import FEW
from delayq.redis.observing import SHOWN as QUEUES_WITH_SERIES
from tests.http.test_access import bearer, key_file
from tests.support.metrics import complaints, samples
from tests.support.web import problem, web

MANY = 10_000
LATE = "q07777"
"""The queue whose job is overdue."""
PAGES = ("/", "/queues", "/jobs", "/jobs?state=ready", "/failed", "/job-types")
TIMED = ("/metrics", "/readyz", "/v1/queues", "/v1/jobs", "/v1/job-types", *PAGES)
MOST_TRIPS = 2_000
"""Round trips to Redis for one answer: a command of its own for each queue would be 10,000. The overview, which looks
at 50 queues in full and at what is wrong with them, needs most."""


def make_queues(server: redis.Redis, holding: int = 1) -> None:
    """Write what 10,000 queues keep, each `holding`th with a job that is due in an hour.

    That of `LATE` was due an hour ago.
    """
    seconds, _ = server.time()
    now_ms = int(seconds) * 1000
    names = [f"q{number:05}" for number in range(MANY)]
    for start in range(0, MANY, 1_000):
        pipe = server.pipeline(transaction=False)
        for name in names[start : start + 1_000]:
            number = int(name[1:])
            due_ms = now_ms - 3_600_000 if name == LATE else now_ms + 3_600_000
            envelope = f'{{"v":1,"id":"a","name":"x","queue":"{name}","data":{{}},"attempts":0,"created_ms":1}}'
            counted: dict[Any, Any] = {"schema": 1, "lease_ms": 30_000, "mover_tick": now_ms, "scheduled_total": 1}
            pipe.hset(f"delayq:{{{name}}}:meta", mapping=counted)
            if number % holding == int(LATE[1:]) % holding:
                pipe.zadd(f"delayq:{{{name}}}:scheduled", {"a": due_ms})
                pipe.hset(f"delayq:{{{name}}}:jobs", "a", envelope)
        pipe.sadd("delayq:queues", *names[start : start + 1_000])
        pipe.execute()


@pytest.fixture
async def api(redis_url: str, redis_client: redis.Redis) -> AsyncIterator[httpx.AsyncClient]:
    make_queues(redis_client)
    async with web(redis_url) as client:
        yield client


async def get(api: httpx.AsyncClient, path: str) -> httpx.Response:
    answer = await api.get(path)
    assert answer.status_code == 200, answer.text[:500]
    return answer


async def test_no_answer_asks_redis_queue_by_queue(api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    trips: list[str] = []
    call, acall = Connector.call, Connector.acall

    def counted(self: Connector, *args: Any, **more: Any) -> Any:
        trips.append("call")
        return call(self, *args, **more)

    async def acounted(self: Connector, *args: Any, **more: Any) -> Any:
        trips.append("acall")
        return await acall(self, *args, **more)

    monkeypatch.setattr(Connector, "call", counted)
    monkeypatch.setattr(Connector, "acall", acounted)
    for path in TIMED:
        trips.clear()
        await api.get(path)
        assert 0 < len(trips) < MOST_TRIPS, path


async def test_metrics_show_the_queues_that_matter_and_sum_the_rest(
    api: httpx.AsyncClient, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.http.metrics.CACHED_S", 0.0)
    page = (await get(api, "/metrics")).text
    assert complaints(page) == []
    found = samples(page)
    shown = {labels[1] for labels in found if labels[0] == "delayq_queue_latency_seconds"}
    assert len(shown) == QUEUES_WITH_SERIES + 1
    assert {LATE, OTHER} <= shown
    assert found["delayq_queue_latency_seconds", LATE] > 3_500
    assert found["delayq_queues_summed",] == MANY - QUEUES_WITH_SERIES
    assert found["delayq_jobs", OTHER, "scheduled"] == MANY - QUEUES_WITH_SERIES
    assert found["delayq_jobs_scheduled_total", OTHER] == MANY - QUEUES_WITH_SERIES
    leaving = next(name for name in sorted(shown) if name not in (LATE, OTHER))
    hidden = next(f"q{number:05}" for number in range(MANY) if f"q{number:05}" not in shown)
    with DelayQ(redis_url) as q:
        q.schedule("x", queue=hidden)  # which is ready at once, so it takes a place among those that are shown
    found = samples((await get(api, "/metrics")).text)
    assert ("delayq_queue_latency_seconds", hidden) in found
    assert found["delayq_jobs_scheduled_total", OTHER] == MANY - QUEUES_WITH_SERIES, "a counter never falls"
    assert leaving in shown


async def test_a_key_for_a_pattern_has_metrics_of_its_queues_alone(
    redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    make_queues(redis_client)
    key, token = new_key(0, [Scope.READ], queues=["q0999*"])
    async with web(redis_url, api_keys_file=str(key_file(tmp_path, one=(key, token)))) as api:
        found = samples((await api.get("/metrics", headers=bearer(token))).text)
        listed = (await api.get("/v1/queues", headers=bearer(token))).json()["queues"]
        refused = problem(await api.get("/v1/queues/q00001", headers=bearer(token)), 403, "forbidden")
    mine = {f"q0999{digit}" for digit in range(10)}
    assert {labels[1] for labels in found if labels[0] == "delayq_queue_paused"} == mine
    assert {row["queue"] for row in listed} == mine
    assert "not for the queue q00001" in refused["detail"]


async def test_readyz_gives_the_last_answer_while_a_new_one_is_made(
    api: httpx.AsyncClient, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await api.get("/readyz")
    assert (first.status_code, first.json()["ready"]) == (503, False)
    assert first.json()["why"] == [f"The oldest job of {LATE} is overdue by {word} s." for word in [_seconds(first)]]
    before = int(redis_client.info("commandstats")["cmdstat_evalsha"]["calls"])
    assert (await api.get("/readyz")).json() == first.json()
    assert int(redis_client.info("commandstats")["cmdstat_evalsha"]["calls"]) - before < 10
    monkeypatch.setattr(kept, "FRESH_S", 0.0)
    assert (await api.get("/readyz")).json() == first.json(), "it is not waited for"


def _seconds(answer: httpx.Response) -> str:
    return str(answer.json()["why"][0].rpartition("by ")[2].removesuffix(" s."))


async def test_readyz_says_a_bounded_number_of_sentences(api: httpx.AsyncClient, redis_client: redis.Redis) -> None:
    pipe = redis_client.pipeline(transaction=False)
    for number in range(500):
        pipe.zadd(f"delayq:{{q{number:05}}}:scheduled", {"a": 1})
    pipe.execute()
    why = (await api.get("/readyz")).json()["why"]
    assert len(why) == 21
    assert why[-1] == "481 more sentences are left out."


async def test_queues_come_page_by_page(api: httpx.AsyncClient) -> None:
    names: list[str] = []
    after = ""
    answer: dict[str, Any] = {"next": ""}
    while answer["next"] is not None:
        answer = (await get(api, f"/v1/queues?after={after}")).json()
        assert len(answer["queues"]) <= 500
        names += [row["queue"] for row in answer["queues"]]
        after = answer["next"]
    assert names == [f"q{number:05}" for number in range(MANY)]
    assert len((await get(api, "/v1/queues?limit=3")).json()["queues"]) == 3


async def test_pages_show_a_bounded_number_of_rows(api: httpx.AsyncClient) -> None:
    overview = (await get(api, "/")).text
    assert overview.count('<th scope="row"><a href="/queues/') == ROWS_OF_THE_OVERVIEW
    assert f"/queues/{LATE}" in overview
    assert "Show all 10,000 queues" in overview
    queues = (await get(api, "/queues")).text
    assert queues.count('<th scope="row"><a href="/queues/') == PAGE
    assert "after=q00099" in queues
    assert "q00100" in (await get(api, "/queues?after=q00099")).text
    found = (await get(api, "/queues?find=Q0777")).text
    assert found.count('<th scope="row"><a href="/queues/') == 10
    jobs = (await get(api, "/jobs")).text
    assert jobs.count('<th scope="row"><a href="/job?') == 50
    assert jobs.count("<option") < 10
    assert LATE in jobs, "the job that is due first"


async def test_the_jobs_of_all_queues_are_walked_once_each(api: httpx.AsyncClient) -> None:
    seen: list[str] = []
    path = "/v1/jobs?limit=500&state=scheduled"
    for _ in range(3):
        answer = (await get(api, path)).json()
        seen += [job["queue"] for job in answer["jobs"]]
        path = f"/v1/jobs?limit=500&state=scheduled&cursor={answer['next_cursor']}"
    assert seen == [f"q{number:05}" for number in range(len(seen))]
    assert len(seen) >= 500


async def test_empty_queues_cost_no_script(redis_url: str, redis_client: redis.Redis) -> None:
    """Of 10,000 queues 10 hold a job: scripts run for these, and in /metrics for the 80 queues that have series."""
    make_queues(redis_client, holding=1_000)
    async with web(redis_url) as api:
        for path in ("/readyz", "/metrics", *PAGES):
            before = commands(redis_client)
            answer = await api.get(path)
            assert answer.status_code in (200, 503), path
            spent = commands(redis_client) - before
            assert spent["evalsha"] < 1_000, path
            assert sum(spent.values()) < 3 * MANY, path
        assert (await get(api, "/jobs")).text.count('<th scope="row"><a href="/job?') == 10


def commands(server: redis.Redis) -> Counter[str]:
    """How often each command has run."""
    told = server.info("commandstats")
    return Counter({name.removeprefix("cmdstat_"): int(one["calls"]) for name, one in told.items()})


async def test_a_glance_at_an_empty_queue_says_what_its_stats_say(redis_url: str, redis_client: redis.Redis) -> None:
    now_ms = int(redis_client.time()[0]) * 1000
    kept: dict[str, dict[Any, Any]] = {
        "plain": {"lease_ms": 5_000, "mover_tick": now_ms, "scheduled_total": 7, "failed_total": 2},
        "paused": {"paused_until_ms": 0},
        "paused-long": {"paused_until_ms": now_ms + 60_000},
        "was-paused": {"paused_until_ms": now_ms - 60_000},
        "odd": {"lease_ms": "soon", "mover_tick": "", "paused_until_ms": "-1"},
    }
    for name, fields in kept.items():
        redis_client.hset(f"delayq:{{{name}}}:meta", mapping=fields)
    redis_client.sadd("delayq:queues", *kept, "nothing", *(f"other-{number}" for number in range(FEW)))
    async with AsyncDelayQ(redis_url) as q:
        seen = {one.queue: one for one in await q.stats()}
        for name in (*kept, "nothing"):
            [one] = await q.stats(name)
            assert replace(seen[name], now_ms=0) == replace(one, now_ms=0)


@pytest.mark.timed
async def test_each_answer_is_there_in_time(api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    took: dict[str, Any] = {}
    for path in TIMED:
        tries = []
        for _ in range(3):
            began = time.perf_counter()
            await api.get(path)
            tries.append(time.perf_counter() - began)
        took[path] = min(tries)
    assert all(seconds < 2.0 for seconds in took.values()), took
