"""Every page, read without JavaScript."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
import redis

from delayq import DelayQ
from delayq.core.errors import Conflict
from delayq.http.dashboard.overview import SHOWN
from delayq.http.dashboard.rendering import NAVIGATION
from delayq.http.dashboard.visit import job_link
from delayq.redis.activity import history
from delayq.redis.connect import Connector
from tests.support.failing import fail_job, take
from tests.support.job_types import report
from tests.support.pages import Page, read, send

PATHS = [
    *(path for path, _ in NAVIGATION),
    "/queues/orders",
    "/jobs?state=failed",
    "/jobs?state=ready",
    "/failed/all?act=retry",
    "/job?queue=orders&id=soon",
    "/job?queue=orders&id=broken",
    "/job?queue=orders&id=nobody",
]
HOSTILE = "<script>alert(1)</script>'\"&amp;{{7*7}}"


@pytest.fixture
def orders(q: DelayQ) -> DelayQ:
    """A queue with a job that waits, one that is ready, and one that has failed."""
    fail(q, "broken")
    data = {"order_id": 7, "token": "t0p-s3cret"}
    q.schedule("order.close", data, delay="10m", id="soon", queue="orders", tags=["vip"])
    q.schedule("order.ship", {"order_id": 8}, delay="0s", id="now", queue="orders")
    return q


def fail(q: DelayQ, job_id: str, message: str = "order 9 has no customer", queue: str = "orders") -> None:
    """Put a failed job there, as a worker does."""
    fail_job(q, job_id, message, queue)


async def test_each_page_is_whole_and_needs_nothing_from_elsewhere(api: httpx.AsyncClient, orders: DelayQ) -> None:
    for path in PATHS:
        page = await read(api, path, 404 if path.endswith("nobody") else 200)
        assert page.source.count("<h1") == 1, path
        assert len(page.ids) == len(set(page.ids)), path
        assert page.loads
        assert all(re.fullmatch(r"/static/[a-z.]+\?v=[0-9a-f]{12}", load) for load in page.loads), path
        assert all(link.startswith(("/", "#")) and not link.startswith("//") for link in page.links), path
        assert not page.tags & {"style", "iframe", "object", "base"}, path
        assert not {name for name in page.attributes if name == "style" or name.startswith("on")}, path
        assert page.source.count("<script") == page.source.count('<script src="/static/') == 1, path


async def test_each_page_says_what_browsers_may_do_with_it(api: httpx.AsyncClient, orders: DelayQ) -> None:
    for path in [*PATHS, "/static/nothing.css"]:
        headers = (await api.get(path)).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy == {
            "default-src": "'none'",
            **dict.fromkeys(("script-src", "style-src", "img-src", "connect-src"), "'self'"),
            "base-uri": "'none'",
            "form-action": "'self'",
            "frame-ancestors": "'none'",
        }, path
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-type"] == "text/html; charset=utf-8"


async def test_files_are_kept_by_browsers_and_change_their_address_with_their_text(api: httpx.AsyncClient) -> None:
    for path in (await read(api, "/")).loads:
        answer = await api.get(path)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    assert (await api.get("/static/../guard.py")).status_code == 404
    assert (await api.get("/static/guard.py")).status_code == 404


async def test_the_overview_of_nothing(api: httpx.AsyncClient) -> None:
    page = await read(api, "/")
    assert "No queue is known yet" in page.text
    assert "Nothing has failed." in page.text


async def test_the_overview_counts_and_tells_what_is_wrong(api: httpx.AsyncClient, orders: DelayQ) -> None:
    page = await read(api, "/")
    assert "Scheduled 1 not due yet" in page.text
    assert "1 job in the next hour." in page.text
    assert "No worker serves this queue" in page.text
    assert page.text.index("Next due") < page.text.index("order.close") < page.text.index("Failed last")
    assert "ValueError" in page.text


async def test_failed_and_running_rows_have_name_and_id(api: httpx.AsyncClient, orders: DelayQ, redis_url: str) -> None:
    page = (await read(api, "/")).text
    assert "order.close broken ValueError" in page[page.index("Failed last") :]
    running = [{"id": "soon", "queue": "orders", "since_ms": 1}, {"id": "gone", "queue": "orders", "since_ms": 1}]
    about = {"name": "w1", "queues": ["orders"], "running": running}
    with redis.Redis.from_url(redis_url) as server:
        server.set("delayq:worker:w1", json.dumps(about), ex=600)
        server.zadd("delayq:workers", {"w1": 2**52})
    page = (await read(api, "/workers")).text
    assert "order.close soon orders" in page
    assert "job gone orders" in page


async def test_a_job_tells_its_payload_without_what_is_covered(api: httpx.AsyncClient, orders: DelayQ) -> None:
    page = await read(api, "/job?queue=orders&id=soon")
    assert '"order_id": 7' in page.text
    assert "t0p-s3cret" not in page.source
    assert "1 value covered" in page.text
    assert "It is not due yet" in page.text


async def test_a_failed_job_tells_its_errors_without_what_is_covered(api: httpx.AsyncClient, q: DelayQ) -> None:
    fail(q, "broken", message="the token t0p-s3cret was refused")
    for path in ("/job?queue=orders&id=broken", "/failed", "/"):
        page = await read(api, path)
        assert "ValueError" in page.text
        assert "t0p-s3cret" not in page.source
    assert "the token •••••• was refused" in (await read(api, "/job?queue=orders&id=broken")).text


async def test_what_comes_from_outside_is_never_markup(api: httpx.AsyncClient, q: DelayQ) -> None:
    told = {"a": HOSTILE, HOSTILE: 1}
    q.schedule(f"x{HOSTILE}", told, delay="1h", id="<b>'\"&?#/%2F", queue="orders", tags=[HOSTILE])
    fail(q, "id<i>", message=HOSTILE)
    plain = {path: await read(api, path) for path in ("/", "/jobs", "/failed", "/jobs?state=failed")}
    plain["job"] = await read(api, job_link("orders", "<b>'\"&?#/%2F"))
    plain["failed"] = await read(api, job_link("orders", "id<i>"))
    plain["search"] = await read(api, "/jobs?name=%3Cscript%3E&tag=%22%3E%3Cb%3E&since=&cursor=")
    for page in plain.values():
        assert page.source.count("<script") == 1
        assert not page.tags & {"b", "i"}
    assert "<script>alert(1)</script>'\"&amp;{{7*7}}" in plain["job"].text
    assert "<b>'\"&?#/%2F" in plain["job"].text


async def test_a_search_finds_by_id_name_tag_and_time(api: httpx.AsyncClient, orders: DelayQ) -> None:
    orders.schedule("mail.send", {}, delay="2h", id="later", queue="mail")

    async def found(query: str) -> set[str]:
        return set(re.findall(r'class="id">(\w+)<', (await read(api, f"/jobs?{query}")).source))

    assert await found("") == {"soon", "later"}
    assert await found("queue=mail") == {"later"}
    assert await found("name=order.*") == {"soon"}
    assert await found("tag=vip") == {"soon"}
    assert await found("since=%2B1h") == {"later"}
    assert await found("until=%2B1h") == {"soon"}
    assert await found("tag=v") == set()
    page = await read(api, "/jobs?id=later")
    assert page.url.path == "/job"
    assert "mail.send" in page.text


async def test_pages_follow_each_other_without_gaps(api: httpx.AsyncClient, q: DelayQ) -> None:
    ids = [f"job-{n:03}" for n in range(120)]
    q.schedule_many(
        [{"name": "x", "delay": f"{n // 3 + 60}s", "id": name, "queue": "ab"[n % 2]} for n, name in enumerate(ids)]
    )
    for path in ("/jobs", "/jobs?order=newest"):
        seen: list[str] = []
        page: Page = await read(api, path)
        while True:
            seen += re.findall(r'class="id">(job-\d+)', page.source)
            following = [link for link in page.links if "cursor=" in link]
            if not following:
                break
            page = await read(api, following[0])
        assert sorted(seen) == ids
        assert len(seen) == 120
        order = [int(name[4:]) // 3 for name in seen]
        assert order == sorted(order, reverse="newest" in path)


UNUSABLE = [
    "/jobs?state=absent",
    "/jobs?state=x",
    "/jobs?cursor=zzz",
    "/jobs?queue=%7Bx%7D",
    "/queues/%20",
    "/job?queue=orders&id=",
    "/job?queue=orders&id=a%20b",
    "/failed/all?act=burn",
    "/events?page=nothing",
]


async def test_what_cannot_be_used_gets_a_page_that_says_so(api: httpx.AsyncClient, orders: DelayQ) -> None:
    for path in UNUSABLE:
        assert "Invalid input" in (await read(api, path, 400)).text, path


@pytest.mark.parametrize("path", ["/jobs", "/failed"])
async def test_a_mistyped_time_stays_in_its_search(api: httpx.AsyncClient, orders: DelayQ, path: str) -> None:
    page = await read(api, f"{path}?queue=orders&name=order.*&since=yesterday&until=%2B1h", 400)
    assert {("name", "order.*"), ("since", "yesterday"), ("until", "+1h")} <= set(page.form(path).fields)
    assert "'yesterday' is no point in time" in page.text
    assert page.source.count('role="alert"') == 1
    assert 'id="q-since-wrong"' in page.source
    page = await read(api, f"{path}?since=%2B2h&until=%2B1h", 400)
    assert "The end is before the start." in page.text


async def test_pages_use_the_words_of_practitioners(api: httpx.AsyncClient, orders: DelayQ) -> None:
    orders.schedule("order.close", delay="0s", id="held", queue="mail")
    take(orders, "held", queue="mail")
    job = (await read(api, "/job?queue=mail&id=held")).text
    assert "mail / reserved" in job
    assert "reserved" in (await read(api, "/jobs?state=reserved")).text
    queue = (await read(api, "/queues/orders")).text
    assert queue.index("Settings Lease") < queue.index("Lifetime counters Scheduled")
    assert "kept for 90d" in (await read(api, "/job?queue=orders&id=broken")).text
    told = " ".join([(await read(api, path)).text for path in PATHS if "nobody" not in path] + [job, queue])
    for word in ("99 of 100", "each step ten times", "to be tried again", "as it should be", "given up", "of no queue"):
        assert word not in told.lower(), word
    assert "p50" in told


async def test_a_page_of_nothing_says_what_it_may_mean(api: httpx.AsyncClient, orders: DelayQ) -> None:
    for theme in ("auto", "dark"):
        page = await read(api, "/job?queue=orders&id=nobody", 404)
        assert "The queue orders knows no job 'nobody'. It is done and was not kept" in " ".join(page.text.split())
        assert "--queue" not in page.text
        await send(api, await read(api, "/"), "/theme", theme=theme)


async def test_where_one_is_stands_in_the_list_of_pages(api: httpx.AsyncClient, orders: DelayQ) -> None:
    marked = re.compile(r'<a href="([^"]*)" aria-current="page"')
    for path, name in (("/", "/"), ("/job?queue=orders&id=soon", "/jobs"), ("/queues/orders", "/queues")):
        assert marked.findall((await read(api, path)).source) == [name]
    assert marked.findall((await read(api, "/batch?id=nobody", 404)).source) == ["/batches"]


async def test_the_theme_is_kept(api: httpx.AsyncClient, orders: DelayQ) -> None:
    page = await read(api, "/jobs?state=ready")
    assert 'data-theme="auto"' in page.source
    page = await send(api, page, "/theme", theme="dark")
    assert 'data-theme="dark"' in page.source
    assert str(page.url).endswith("/jobs?state=ready")


def test_the_jobs_of_this_suite_fail_as_they_do_in_a_worker(q: DelayQ) -> None:
    fail(q, "broken")
    with pytest.raises(Conflict):
        q.reschedule("broken", queue="orders", delay="1m")


# -- job types ---------------------------------------------------------------------------------------------------------


def names_on(page: Page) -> list[str]:
    """The job names of the table, in its order."""
    return re.findall(r'<th scope="row">([^<]*)', page.source)


def row_of(page: Page, name: str) -> str:
    """The text of a row of the table of job types."""
    [row] = [row for row in page.source.split("<tr>") if f'<th scope="row">{name}</th>' in row]
    return " ".join(re.sub(r"<[^>]+>", " ", row).split())


async def test_which_job_type_is_slow_and_which_fails_most(api: httpx.AsyncClient, q: DelayQ) -> None:
    report(q, "orders", "order.close", [100.0] * 96 + [4_000.0] * 4, done=90, released=6, failed=4)
    report(q, "mail", "mail.send", [20.0] * 200, done=200)
    report(q, "orders", "report", [60_000.0], done=1)
    page = await read(api, "/job-types")
    assert "Most failures 10 order.close, 10%" in page.text
    assert re.search(r"Slowest, p99 (5[5-9]s|1m( [1-5]s)?) report", page.text)
    assert names_on(page) == ["mail.send", "order.close", "report"]
    row = row_of(page, "order.close")
    assert re.match(r"order.close 100 0\.\d/min 10% 10 6 retried (9[1-9]|10\d)ms (3\.[7-9]|4(\.[0-3])?)s", row), row
    assert 'aria-sort="descending"><a class="order" href="/job-types" title="Sort by attempts"' in page.source
    by_p99 = await read(api, "/job-types?sort=p99&window=90d&queue=orders")
    assert names_on(by_p99) == ["report", "order.close"]
    assert {"/job-types?queue=orders&sort=p99", "/job-types?queue=orders&window=90d&sort=failures"} <= set(by_p99.links)
    assert "/failed/groups?name=order.close&queue=orders" in by_p99.links


async def test_from_a_job_type_to_its_failed_jobs(api: httpx.AsyncClient, orders: DelayQ) -> None:
    strange = "App\\Jobs\\Close[1]*"
    report(orders, "orders", strange, [1.0], failed=1)
    report(orders, "orders", "order.close", [1.0], failed=1)
    report(orders, "orders", "unknown", [1.0], failed=1)
    links = [link for link in (await read(api, "/job-types")).links if link.startswith("/failed/groups")]
    assert len(links) == 2
    pages = [await read(api, link) for link in links]
    assert sorted("broken" in page.text for page in pages) == [False, True]


async def test_a_job_type_may_be_called_anything(api: httpx.AsyncClient, q: DelayQ) -> None:
    report(q, "orders", HOSTILE, [1.0], done=1)
    page = await read(api, "/job-types")
    assert HOSTILE in page.text
    assert HOSTILE not in page.source


async def test_the_page_of_job_types_without_any_and_with_too_many(api: httpx.AsyncClient, q: DelayQ) -> None:
    assert "No attempt of a delayq worker ended in the last 90 days." in (await read(api, "/job-types?window=90d")).text
    for n in range(103):
        report(q, "orders", f"job-{n}", [1.0], done=1)
    page = await read(api, "/job-types")
    assert page.source.count('<th scope="row">') == 100
    assert "3 job types more" in page.text
    for wrong in ("window=7d", "sort=name", "queue=%20x%20y"):
        await read(api, f"/job-types?{wrong}", 400)


async def test_the_overview_draws_ninety_days_of_all_queues(
    api: httpx.AsyncClient, q: DelayQ, redis_client: redis.Redis
) -> None:
    today = q.run(q.verbs.server_ms()) // 86_400_000
    for queue, day, done, failed in (("orders", today - 89, 5, 1), ("mail", today - 89, 2, 0), ("mail", today, 4, 3)):
        q.schedule("order.close", delay="1h", queue=queue, id="later")
        row = json.dumps({"day": day, "acked": done, "failed": failed})
        redis_client.hset(f"delayq:{{{queue}}}:history", str(day), row)
        redis_client.expire(f"delayq:{{{queue}}}:history", 60)
    page = await read(api, "/")
    assert "Jobs that ended, by day 11 jobs done and 4 failed in 90 days." in page.text


async def test_the_days_of_fifty_queues_take_one_round_trip(q: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"q{n}" for n in range(SHOWN)]
    q.schedule_many([{"name": "order.close", "delay": "1h", "queue": name} for name in names])
    trips: list[int] = []
    call = Connector.call

    def counted(self: Connector, *args: Any, **more: Any) -> Any:
        trips.append(1)
        return call(self, *args, **more)

    monkeypatch.setattr(Connector, "call", counted)
    found = q.run(history(q.verbs, names, 90))
    assert (len(trips), found.spans[-1].scheduled, len(found.spans)) == (1, SHOWN, 90)
