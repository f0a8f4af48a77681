"""What operators do from the pages to workers, to all queues, and to a queue that is not needed any more."""

from __future__ import annotations

import httpx
import pytest

from delayq import DelayQ
from delayq.http.dashboard.fleet_pages import worker_parts
from delayq.http.dashboard.live import Watched
from delayq.http.dashboard.routes import house_of
from tests.support.announcing import announce, order_of
from tests.support.pages import Page, read, send


async def press(api: httpx.AsyncClient, page: Page, action: str, **filled: str) -> Page:
    """Press a button that belongs to the form of the page's orders; where it leads."""
    mark = dict(page.form("/workers/quiet").fields)["mark"]
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
