"""What operators do from the pages to workers, to all queues, and to a queue that is not needed any more."""

from __future__ import annotations

import httpx
import pytest
import redis

from delayq import DelayQ
from delayq.http.dashboard.fleet_pages import worker_parts
from delayq.http.dashboard.live import Watched
from delayq.http.dashboard.routes import house_of
from tests.support.announcing import announce, order_of
from tests.support.pages import Page, read, send


async def press(api: httpx.AsyncClient, page: Page, action: str, **filled: str) -> Page:
    """Press a button that leads elsewhere than the form it belongs to; where it leads."""
    mark = next(value for form in page.forms for name, value in form.fields if name == "mark")
    headers = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    return Page(await api.post(action, data={"mark": mark, **filled}, headers=headers, follow_redirects=True))


@pytest.mark.parametrize("order", ["quiet", "restart", "stop"])
async def test_a_worker_is_told_what_to_do_after_a_question(
    api: httpx.AsyncClient, q: DelayQ, redis_url: str, order: str
) -> None:
    announce(redis_url, "dq:web-1:2:b", ["orders"], worker="dq:web-1:1:a", runs=2)
    page = await read(api, "/workers")
    asked = await press(api, page, f"/workers/{order}", worker="dq:web-1:1:a")
    assert "the 2 jobs that run there" in asked.text
    assert order_of(redis_url, "dq:web-1:1:a") == ""
    done = await send(api, asked, f"/workers/{order}", reason="it runs hot")
    assert done.url.path == "/workers"
    assert "The worker dq:web-1:1:a ends its jobs" in done.text
    assert order_of(redis_url, "dq:web-1:1:a") == order
    [deed] = q.audit_log.last()
    assert (deed.what, deed.target, deed.reason) == (f"worker {order}", "dq:web-1:1:a", "it runs hot")


async def test_a_quiet_worker_is_resumed_without_a_question(api: httpx.AsyncClient, redis_url: str) -> None:
    announce(redis_url, "w:1", ["orders"], worker="w", state="quiet")
    announce(redis_url, "w:2", ["orders"], worker="w", state="quiet")
    page = await read(api, "/workers")
    assert "2 processes" in page.text
    assert "Resume w" in page.text
    assert "Make quiet" not in page.text
    done = await press(api, page, "/workers/resume", worker="w")
    assert "The worker w takes jobs again." in done.text


async def test_a_worker_that_has_left_is_said_so(api: httpx.AsyncClient, redis_url: str) -> None:
    announce(redis_url, "w:1", ["orders"], worker="w")
    page = await read(api, "/workers")
    gone = await press(api, page, "/workers/stop", worker="gone")
    assert (gone.status, "No live worker is called 'gone'" in gone.text) == (404, True)
    wrong = await press(api, page, "/workers/halt", worker="w")
    assert (wrong.status, "is no order for a worker" in wrong.text) == (400, True)


async def test_only_an_admin_is_sent_the_buttons(api: httpx.AsyncClient, redis_url: str) -> None:
    announce(redis_url, "w:1", ["orders", "secret"], worker="w")
    house = house_of(api._transport.app.state.service)  # type: ignore[attr-defined]  # httpx's ASGI transport
    as_admin = (await worker_parts(house, Watched("workers", role="admin")))["worker_table"]
    as_reader = (await worker_parts(house, Watched("workers", role="read-only")))["worker_table"]
    of_some = (await worker_parts(house, Watched("workers", queues=("orders",), role="admin")))["worker_table"]
    assert 'formaction="/workers/stop"' in as_admin
    assert "formaction" not in as_reader
    assert "formaction" not in of_some, "it serves a queue that the key does not cover"
    assert "secret" not in of_some


async def test_everything_is_paused_and_resumed_from_the_overview(api: httpx.AsyncClient, q: DelayQ) -> None:
    q.schedule("order.close", delay="0s", id="a", queue="orders")
    q.schedule("mail.send", delay="1h", queue="mails")
    q.pause("mails")
    asked = await press(api, await read(api, "/"), "/switch/pause", length="10m")
    assert "Pause everything for 10m?" in asked.text
    assert "any of the 2 queues" in asked.text
    assert not q.control().paused
    done = await send(api, asked, "/switch/pause", reason="the bank is away")
    assert "Everything is paused until" in done.text
    assert ": the bank is away." in done.text
    assert (q.control().paused, q.control().paused_reason) == (True, "the bank is away")
    why = await read(api, "/job?queue=orders&id=a")
    assert "Its reason: the bank is away." in why.text
    again = await press(api, done, "/switch/resume")
    assert "Everything goes on, but for 1 queue paused by name: mails." in again.text
    assert (q.control().paused, q.control().paused_reason) == (False, "")
    found = [(one.what, one.detail, one.reason) for one in q.audit_log.last()]
    assert found == [("resume all", "", ""), ("pause all", "10m", "the bank is away")]


async def test_maintenance_from_the_overview(api: httpx.AsyncClient, q: DelayQ) -> None:
    asked = await press(api, await read(api, "/"), "/switch/maintenance", length="")
    assert "Start maintenance until it is ended?" in asked.text
    done = await send(api, asked, "/switch/maintenance", reason="new schema")
    assert "There is maintenance, and workers fetch nothing, until it is ended: new schema." in done.text
    assert q.control().maintenance
    done = await press(api, done, "/switch/end-maintenance")
    assert "Maintenance has ended." in done.text
    assert not q.control().maintenance


async def test_a_mistyped_length_stays_on_the_overview(api: httpx.AsyncClient, q: DelayQ) -> None:
    page = await press(api, await read(api, "/"), "/switch/pause", length="15 minuets")
    assert page.status == 400
    assert 'value="15 minuets"' in page.source
    assert 'aria-invalid="true"' in page.source
    assert "Nothing was changed." in page.text
    assert not q.control().paused
    assert q.audit_log.last() == []
    wrong = await press(api, page, "/switch/explode")
    assert (wrong.status, "cannot be done to all queues" in wrong.text) == (400, True)


async def test_a_queue_is_removed_from_its_page_when_it_holds_nothing(
    api: httpx.AsyncClient, q: DelayQ, redis_url: str
) -> None:
    q.schedule("order.close", delay="1h", id="a", queue="orders")
    page = await read(api, "/queues/orders")
    assert "It cannot be removed now: it holds 1 scheduled." in page.text
    assert "/queues/orders/remove" not in [form.action for form in page.forms]
    q.cancel("a", queue="orders")
    announce(redis_url, "w:1", ["orders"], worker="w")
    served = await read(api, "/queues/orders")
    assert "It cannot be removed now: the worker w:1 serves it." in served.text
    with redis.Redis.from_url(redis_url) as server:
        server.delete("delayq:worker:w:1")
    asked = await send(api, await read(api, "/queues/orders"), "/queues/orders/remove")
    assert "Remove the queue orders?" in asked.text
    q.schedule("order.close", delay="1h", id="b", queue="orders")
    refused = await send(api, asked, "/queues/orders/remove", 409)
    assert "The queue was not removed." in refused.text
    assert "1 scheduled" in refused.text
    q.cancel("b", queue="orders")
    done = await send(api, asked, "/queues/orders/remove", reason="not used any more")
    assert done.url.path == "/queues"
    assert q.queues() == []
    gone = await send(api, asked, "/queues/orders/remove", 404, reason="from another tab")
    assert "No queue 'orders' is known." in gone.text
    found = [(one.what, one.target, one.outcome) for one in q.audit_log.last()]
    assert found == [("queue remove", "orders", word) for word in ("refused", "done", "refused")]
