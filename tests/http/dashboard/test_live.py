"""Pages that stay true: one reader for all who watch."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest

from delayq import DelayQ
from delayq.core.errors import BackendUnavailable
from delayq.http.dashboard import live
from delayq.http.dashboard.live import Full, Hub, Parts, Watched
from delayq.http.dashboard.rendering import NAVIGATION
from delayq.redis.connect import Connector
from tests.support.failing import fail_job
from tests.support.pages import read

OVERVIEW = Watched("overview")


class Source:
    """Makes parts; counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.parts: dict[str, str] = {"a": "0", "b": "same"}
        self.down = False

    async def __call__(self, watched: Watched) -> Parts:
        self.asked[watched.page] += 1
        if self.down:
            raise BackendUnavailable("Redis is away.")
        return dict(self.parts)


def read_event(event: str) -> dict[str, dict[str, str]]:
    assert event.startswith("data: ")
    assert event.endswith("\n\n")
    found: dict[str, dict[str, str]] = msgspec.json.decode(event[6:])
    return found


async def events(stream: AsyncIterator[str]) -> AsyncIterator[dict[str, dict[str, str]]]:
    async for event in stream:
        if event.startswith("data: "):
            yield read_event(event)


async def test_all_who_watch_a_page_are_told_by_one_reader() -> None:
    source, stopping = Source(), asyncio.Event()
    hub = Hub(source, stopping, every_s=0.01)
    streams = [events(await hub.watch(OVERVIEW)) for _ in range(20)]
    first = await asyncio.gather(*(anext(stream) for stream in streams))
    assert first == [{"parts": {"a": "0", "b": "same"}}] * 20
    before = source.asked["overview"]
    source.parts["a"] = "1"
    second = await asyncio.gather(*(anext(stream) for stream in streams))
    assert second == [{"parts": {"a": "1"}}] * 20  # what did not change is not sent again
    assert source.asked["overview"] - before < 20
    stopping.set()
    assert await asyncio.gather(*(ends(stream) for stream in streams)) == [True] * 20
    assert hub.watchers == 0


async def ends(stream: AsyncIterator[object]) -> bool:
    async for _ in stream:
        return False
    return True


async def test_who_comes_later_is_told_everything() -> None:
    source, stopping = Source(), asyncio.Event()
    hub = Hub(source, stopping, every_s=0.01)
    early = events(await hub.watch(OVERVIEW))
    await anext(early)
    late = events(await hub.watch(OVERVIEW))
    assert await anext(late) == {"parts": {"a": "0", "b": "same"}}
    stopping.set()
    await asyncio.gather(ends(early), ends(late))


async def test_an_outage_is_told_and_its_end_too() -> None:
    source, stopping = Source(), asyncio.Event()
    hub = Hub(source, stopping, every_s=0.01)
    stream = events(await hub.watch(OVERVIEW))
    await anext(stream)
    source.down = True
    assert await anext(stream) == {"down": {"what": "Redis is away."}}
    source.down = False
    async for event in stream:
        if "parts" in event:
            assert event == {"parts": {"a": "0", "b": "same"}}
            break
    stopping.set()
    await ends(stream)


async def test_nobody_reads_what_nobody_watches() -> None:
    source, stopping = Source(), asyncio.Event()
    hub = Hub(source, stopping, every_s=0.001)
    raw = await hub.watch(OVERVIEW)
    await anext(raw)
    await anext(raw)
    await raw.aclose()  # type: ignore[attr-defined]  # it is a generator
    assert hub.watchers == 0
    task = hub._task
    assert task is not None
    await asyncio.wait_for(task, 10)
    asked = source.asked["overview"]
    await asyncio.sleep(0.02)
    assert source.asked["overview"] == asked


async def test_there_is_a_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_PAGES", 1)
    stopping = asyncio.Event()
    hub = Hub(Source(), stopping, every_s=0.01)
    stream = await hub.watch(OVERVIEW)
    await anext(stream)
    with pytest.raises(Full):
        await hub.watch(Watched("job", "orders", "a"))
    stopping.set()
    assert await ends(stream)


async def test_a_queue_that_somebody_watches(api: httpx.AsyncClient, q: DelayQ) -> None:
    """Through the application, which ends by itself when the server stops."""
    q.schedule("order.close", delay="1h", id="a", queue="orders")
    service = api._transport.app.state.service  # type: ignore[attr-defined]  # httpx's ASGI transport
    service.stopping.set()
    answer = await api.get("/events?page=queue&queue=orders")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.startswith("retry: ")


PAGES = [*(path for path, _ in NAVIGATION), "/queues/orders", "/job?queue=orders&id=a", "/failed/all?act=retry"]
PAGES += ["/failed/groups"]


async def test_no_page_asks_more_where_there_is_more(
    api: httpx.AsyncClient, q: DelayQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Round trips to Redis depend on the number of queues, not on that of jobs."""
    fail_job(q, "broken", "no")
    q.schedule("order.close", delay="1h", id="a", queue="orders")
    asked: Counter[str] = Counter()
    acall = Connector.acall

    async def counting(self: Connector, *args: object, **options: object) -> object:
        asked["trips"] += 1
        return await acall(self, *args, **options)  # type: ignore[arg-type]  # passed on as they came

    async def trips() -> dict[str, int]:
        """The fewest of three reads: a session's state is remembered for a second, and then asked for again."""
        found: dict[str, int] = {}
        for path in PAGES:
            counts = []
            for _ in range(3):
                asked.clear()
                await read(api, path)
                counts.append(asked["trips"])
            found[path] = min(counts)
        return found

    monkeypatch.setattr(Connector, "acall", counting)
    await trips()  # the first ones also read what is remembered
    few = await trips()
    q.schedule_many([{"name": "order.close", "delay": "2h", "queue": "orders"} for _ in range(600)])
    many = await trips()
    assert min(few.values()) > 0
    assert max(few.values()) <= 25
    assert {path for path in PAGES if many[path] > few[path]} == set()
