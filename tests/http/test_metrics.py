"""/metrics of `delayq serve`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from delayq import DelayQ
from delayq.core.api_keys import Scope, new_key
from delayq.core.options import Options
from delayq.drivers.redis_streams import RedisStreams
from delayq.redis.connect import Connector
from delayq.redis.observing import ASKS, observe
from delayq.settings import Settings
from tests.http.test_access import bearer, key_file
from tests.support.metrics import complaints, promtool, samples
from tests.support.waiting import wait_until
from tests.support.web import problem, web


@pytest.fixture
def q(redis_url: str) -> Any:
    with DelayQ(redis_url) as client:
        yield client


async def page(api: httpx.AsyncClient, **headers: str) -> str:
    answer = await api.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_the_state_of_each_queue(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("close", delay="1h", queue="orders")
    q.schedule("close", delay="1h", queue="orders", id="o1")
    q.schedule("close", queue="orders")
    q.cancel("o1", queue="orders")
    q.pause("mail")
    found = samples(await page(api))
    jobs = {state: found["delayq_jobs", "orders", state] for state in ("scheduled", "ready", "reserved", "failed")}
    assert jobs == {"scheduled": 1, "ready": 1, "reserved": 0, "failed": 0}
    assert found["delayq_jobs_scheduled_total", "orders"] == 3
    assert found["delayq_jobs_cancelled_total", "orders"] == 1
    assert found["delayq_overdue_jobs", "orders"] == 1
    assert (found["delayq_queue_paused", "mail"], found["delayq_queue_paused", "orders"]) == (1, 0)
    assert found["delayq_queue_latency_seconds", "orders"] >= 0
    assert found["delayq_queue_memory_bytes", "orders"] > 200
    assert found["delayq_workers", "orders"] == 0
    assert found["delayq_redis_up",] == 1


async def test_how_late_movers_were(api: httpx.AsyncClient, q: DelayQ, redis_url: str) -> None:
    q.schedule("close", delay="1ms", queue="orders")
    with closing(Connector(redis_url)) as connector:
        driver = RedisStreams(connector, Options(queue="orders"))
        wait_until(lambda: driver.promote("orders").moved == 1, what="it is promoted")
    found = samples(await page(api))
    assert found["delayq_queue_promotion_seconds_count", "orders"] == 1
    assert found["delayq_queue_promotion_seconds_bucket", "+Inf", "orders"] == 1
    assert 0 <= found["delayq_queue_promotion_seconds_sum", "orders"] < 60


async def test_the_page_keeps_the_rules(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("close", delay="1h", id="order-4711")
    text = await page(api)
    assert complaints(text) == []
    assert "order-4711" not in text
    assert promtool("metrics", text) == ""


async def test_the_form_that_is_asked_for(api: httpx.AsyncClient) -> None:
    answer = await api.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    assert (await api.get("/metrics")).headers["content-type"].startswith("text/plain")


async def test_one_look_serves_all_who_ask_within_five_seconds(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("close", delay="1h")
    assert samples(await page(api))["delayq_jobs", "default", "scheduled"] == 1
    q.schedule("close", delay="1h")
    assert samples(await page(api))["delayq_jobs", "default", "scheduled"] == 1


async def test_a_damaged_queue_keeps_no_other_from_being_seen(
    api: httpx.AsyncClient, q: DelayQ, redis_client: redis.Redis
) -> None:
    q.schedule("close", delay="1h", queue="orders")
    q.schedule("send", delay="1h", queue="mail")
    redis_client.set("delayq:{orders}:scheduled", "damage")
    found = samples(await page(api))
    assert (found["delayq_queue_readable", "orders"], found["delayq_queue_readable", "mail"]) == (0, 1)
    assert found["delayq_jobs", "mail", "scheduled"] == 1
    assert ("delayq_jobs", "orders", "scheduled") not in found
    redis_client.flushall()


async def test_a_redis_that_is_away_is_told_on_the_page() -> None:
    async with web("redis://127.0.0.1:1/0") as api:
        found = samples(await page(api))
    assert found["delayq_redis_up",] == 0
    assert not [key for key in found if key[0] == "delayq_jobs"]


async def test_a_key_sees_its_queues_and_without_one_nothing_is_seen(redis_url: str, q: DelayQ, tmp_path: Path) -> None:
    q.schedule("close", delay="1h", queue="orders")
    q.schedule("send", delay="1h", queue="mail")
    key, token = new_key(0, [Scope.READ], queues=["mail"])
    async with web(redis_url, api_keys_file=str(key_file(tmp_path, one=(key, token)))) as api:
        problem(await api.get("/metrics"), 401, "unauthorized")
        text = await page(api, **bearer(token))
    assert 'queue="mail"' in text
    assert "orders" not in text


def test_the_cost_is_a_few_commands_a_queue_in_two_round_trips(q: DelayQ, redis_url: str, redis_client: Any) -> None:
    for n in range(20):
        q.schedule("close", delay="1h", queue=f"q{n}")
    connector = Connector(redis_url)
    observe(connector, Settings().options())  # the scripts are known from here on
    before = redis_client.info("stats")["total_commands_processed"]
    clients = redis_client.info("commandstats")
    assert len(observe(connector, Settings().options()).queues) == 20
    after = redis_client.info("commandstats")
    connector.close()
    sent = sum(_calls(after, name) - _calls(clients, name) for name in ("evalsha", "smembers"))
    assert sent == 20 * (len(ASKS) - 2) + 1, "each question but two, which read a hash; and who is there"
    assert before > 0


def _calls(stats: dict[str, Any], name: str) -> int:
    return int(stats.get(f"cmdstat_{name}", {}).get("calls", 0))


def test_the_parser_of_prometheus_reads_what_the_rules_are_checked_on() -> None:
    assert complaints("# HELP a_total x\n# TYPE a_total gauge\na_total 1\n")
    assert list(text_string_to_metric_families("# HELP a x\n# TYPE a gauge\na 1\n"))
