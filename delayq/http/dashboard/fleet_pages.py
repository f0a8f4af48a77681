"""Workers and what each runs; batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from delayq.core.api_keys import covers
from delayq.core.views import WorkerInfo
from delayq.http.dashboard.confirm import Question
from delayq.http.dashboard.deeds import note
from delayq.http.dashboard.house import House
from delayq.http.dashboard.live import Parts, Watched
from delayq.http.dashboard.pages import back, show
from delayq.http.dashboard.visit import NotAllowed, Visit, link
from delayq.http.dashboard.wording import plural

LISTED = 100
NAMED = 50
"""Running jobs that are looked up for their names."""
SHOWN = 200
"""Batches, and members of one, on a page."""


async def workers(house: House, visit: Visit) -> Response:
    """GET /workers"""
    return await show(house, visit, "workers.html", await workers_told(house, visit.viewer.queues))


async def worker_parts(house: House, watched: Watched) -> Parts:
    """What changes on it."""
    return {"worker_table": house.renderer.text("parts/worker_table.html", await workers_told(house, watched.queues))}


async def workers_told(house: House, allowed: tuple[str, ...]) -> dict[str, Any]:
    """Each worker, and of what it runs what may be seen."""
    found = [one for one in await house.client.workers() if any(covers(allowed, name) for name in one.queues)]
    running = {one.name: _running(one, allowed) for one in found}
    return {
        "now_ms": await house.now_ms(),
        "workers": found,
        "running": running,
        "names": await _names(house, [row for rows in running.values() for row in rows][:NAMED]),
        "control": await house.client.control(),
    }


async def _names(house: House, rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """The names of running jobs by queue and id; a job that has ended since has none."""
    found = await asyncio.gather(*(house.client.get(row["id"], queue=row["queue"]) for row in rows))
    return {(info.queue, info.id): info.name for info in found if info is not None}


def _running(worker: WorkerInfo, allowed: tuple[str, ...]) -> list[dict[str, Any]]:
    """What it says it runs; somebody else may have written anything there."""
    said = worker.about.get("running")
    rows = [row for row in said if isinstance(row, dict)] if isinstance(said, list) else []
    whole = [row for row in rows if all(isinstance(row.get(key), str) for key in ("id", "queue"))]
    return [row for row in whole if covers(allowed, row["queue"])]


# -- batches ---------------------------------------------------------------------------------------------------------


def _all_queues(visit: Visit) -> None:
    """Batches, limits and the log are of no queue: who may see a part of the queues sees none of them."""
    if visit.viewer.queues:
        raise NotAllowed("This page covers all queues, and your key is for some.", hint="It needs a key for all.")


async def batches(house: House, visit: Visit) -> Response:
    """GET /batches"""
    _all_queues(visit)
    told = {"now_ms": await house.now_ms(), "batches": await house.client.batches.list(LISTED)}
    return await show(house, visit, "batches.html", told)


async def batch(house: House, visit: Visit) -> Response:
    """GET /batch?id=…"""
    _all_queues(visit)
    name, desk = visit.asked("id"), house.client.batches
    told = {
        "now_ms": await house.now_ms(),
        "one": await desk.get(name),
        "pending": await desk.pending(name, SHOWN),
        "failed": (await desk.failed(name))[:SHOWN],
    }
    return await show(house, visit, "batch.html", told)


async def batch_parts(house: House, watched: Watched) -> Parts:
    """What changes on the list of batches."""
    told = {"now_ms": await house.now_ms(), "batches": await house.client.batches.list(LISTED)}
    return {"batch_table": house.renderer.text("parts/batch_table.html", told)}


async def ask_cancel(house: House, visit: Visit) -> Question:
    """The question before a batch is cancelled."""
    _all_queues(visit)
    info = await house.client.batches.get(visit.filled("id"))
    left = plural(info.pending, "job")
    what = f"{left} of {info.total:,} have not ended. Those that have not started will not run; there is no undo."
    title = f"Cancel the rest of the batch {info.name or info.id}?"
    return Question(title, what, f"Cancel {left}", link("/batch", id=info.id), needs_reason=True)


async def cancel_batch(house: House, visit: Visit) -> Response:
    """POST /batch/cancel"""
    _all_queues(visit)
    name = visit.filled("id")
    await note(house, visit, "batch cancel", name)
    info = await house.client.batches.cancel(name)
    return back(house, visit, link("/batch", id=name), f"Nothing of it starts any more; {info.pending:,} are left.")


async def retry_batch(house: House, visit: Visit) -> Response:
    """POST /batch/retry"""
    _all_queues(visit)
    name = visit.filled("id")
    await note(house, visit, "batch retry", name)
    number = await house.client.batches.retry(name)
    return back(house, visit, link("/batch", id=name), f"{plural(number, 'member')} will be retried.")
