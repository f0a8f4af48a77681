"""What `delayq serve` asks Redis for: every page and every route once, a page of a list behind the first, a session."""

from __future__ import annotations

import asyncio
import re
from typing import Final

import httpx

from delayq.http.dashboard.rendering import NAVIGATION
from tests.support.pages import read
from tests.support.station import QUEUE, Station
from tests.support.web import web

PAGES: Final = (
    *(path for path, _ in NAVIGATION), f"/queues/{QUEUE}", "/jobs?name=n*&since=-1h", "/failed/all?act=retry",
    f"/job?queue={QUEUE}&id=broken", f"/job?queue={QUEUE}&id=j1", "/job?id=j1",
)  # fmt: skip
ROUTES: Final = (
    "/metrics", "/livez", f"/v1/jobs?queue={QUEUE}", "/v1/jobs", "/v1/jobs/j1", "/v1/jobs?tag=x",
    "/v1/jobs?due_from=2026-11-21T15:00:00Z&name=n", "/v1/failed", "/v1/queues", f"/v1/queues/{QUEUE}",
    f"/v1/queues/{QUEUE}/upcoming", "/v1/workers", "/v1/batches", "/v1/audit",
)  # fmt: skip
LONG: Final = (f"/jobs?queue={QUEUE}", f"/jobs?queue={QUEUE}&order=newest")
_NEXT: Final = re.compile(r'href="([^"]*cursor=[^"]*)" rel="next"')


def a_server(station: Station) -> None:
    """More jobs than a page shows, one that failed, one that is ready; and then all that can be asked."""
    jobs = [{"name": "n", "id": f"j{n}", "delay": "1h", "tags": ["x"]} for n in range(60)]
    station.client.schedule_many(jobs)
    station.handles("bad", lambda: 1 / 0, tries=1)
    station.client.schedule("bad", id="broken")
    station.drain()
    asyncio.run(_asked(station.url))


async def _asked(url: str) -> None:
    async with web(url, queue=QUEUE) as api:
        for path in PAGES:
            await read(api, path)
        for path in LONG:
            found = _NEXT.search((await read(api, path)).source)
            assert found, f"{path} has no second page"
            await read(api, found[1].replace("&amp;", "&"))
        for path in ROUTES:
            await _well(api, "GET", path)
        await _changed(api)


async def _changed(api: httpx.AsyncClient) -> None:
    await _well(api, "POST", "/v1/jobs", {"name": "n", "id": "now"}, key="1")
    await _well(api, "PATCH", "/v1/jobs/j1", {"delay": "2h"})
    await _well(api, "POST", "/v1/jobs/j2/run-now")
    await _well(api, "DELETE", "/v1/jobs/j3")
    await _well(api, "POST", "/v1/jobs/bulk", {"action": "cancel", "filter": {"queue": QUEUE, "name": "n"}, "limit": 5})
    [held, other] = (await _well(api, "POST", f"/v1/queues/{QUEUE}/reservations", {"count": 2})).json()["reservations"]
    for deed in ("renew", "ack"):
        await _well(api, "POST", f"/v1/reservations/{held['token']}/{deed}")
    await _well(api, "POST", f"/v1/reservations/{other['token']}/release", {"delay": "1h"})
    await _well(api, "POST", "/v1/jobs/broken/retry")
    for deed in ("pause", "resume"):
        await _well(api, "POST", f"/v1/queues/{QUEUE}/{deed}")


async def _well(
    api: httpx.AsyncClient, method: str, path: str, body: object = None, *, key: str = ""
) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    answer = await api.request(method, path, json=body, headers=headers)
    assert answer.status_code < 300, (method, path, answer.text)
    return answer
