"""Workers, what each runs, and what they are told; batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from delayq.core.api_keys import Scope, covers
from delayq.core.control import WorkerOrder
from delayq.core.errors import InvalidInput, WorkerNotFound
from delayq.core.shown import shown
from delayq.core.views import WorkerInfo
from delayq.http.dashboard.confirm import Question
from delayq.http.dashboard.deeds import note
from delayq.http.dashboard.house import House
from delayq.http.dashboard.live import Parts, Watched
from delayq.http.dashboard.pages import back, show
from delayq.http.dashboard.visit import Visit, all_queues, link
from delayq.http.dashboard.wording import plural

LISTED = 100
NAMED = 50
"""Running jobs that are looked up for their names."""
SHOWN = 200
"""Batches, and members of one, on a page."""


async def workers(house: House, visit: Visit) -> Response:
    """GET /workers"""
    return await show(house, visit, "workers.html", await workers_told(house, visit.viewer.queues, visit.viewer.role))


async def worker_parts(house: House, watched: Watched) -> Parts:
    """What changes on it."""
    told = await workers_told(house, watched.queues, watched.role)
    return {"worker_table": house.renderer.text("parts/worker_table.html", told)}


async def workers_told(house: House, allowed: tuple[str, ...], role: str) -> dict[str, Any]:
    """Each worker, and of what it serves and runs what may be seen."""
    found = [one for one in await house.client.workers() if any(covers(allowed, name) for name in one.queues)]
    running = {one.name: _running(one, allowed) for one in found}
    return {
        "now_ms": await house.now_ms(),
        "workers": _fleet(found, allowed),
        "seen": {one.name: [queue for queue in one.queues if covers(allowed, queue)] for one in found},
        "admin": role == Scope.ADMIN,
        "running": running,
        "names": await _names(house, [row for rows in running.values() for row in rows][:NAMED]),
        "control": await house.client.control(),
    }


@dataclass(frozen=True, slots=True)
class Fleet:
    """A worker on the page: its name, its processes, and whether the viewer sees all of its queues."""

    name: str
    processes: tuple[WorkerInfo, ...]
    whole: bool

    @property
    def leaving(self) -> bool:
        """Whether it was told to leave already."""
        return all(one.about.get("state") == "leaving" for one in self.processes)

    @property
    def quiet(self) -> bool:
        """Whether it was told to take no new jobs."""
        return any(one.about.get("state") == "quiet" for one in self.processes)


def _fleet(found: Sequence[WorkerInfo], allowed: tuple[str, ...]) -> list[Fleet]:
    """The workers, each with its processes; a process that names no worker stands for itself and takes no orders."""
    by_worker: dict[str, list[WorkerInfo]] = {}
    for one in found:
        by_worker.setdefault(one.worker or one.name, []).append(one)
    return [
        Fleet(name, tuple(some), bool(some[0].worker) and all(covers(allowed, queue) for queue in some[0].queues))
        for name, some in by_worker.items()
    ]


_ORDERS: Final = {
    "quiet": ("Make the worker {} quiet?", "It ends {} and takes no new ones until it is resumed.", "Make quiet"),
    "stop": (
        "Stop the worker {}?",
        "It ends {} within its grace and leaves with exit code 0; what still runs then starts again elsewhere. "
        "A process manager that restarts workers always starts it again.",
        "Stop worker",
    ),
    "restart": (
        "Restart the worker {}?",
        "It ends {} within its grace and leaves with exit code 0. Its process manager has to start it again.",
        "Restart worker",
    ),
}
_TOLD: Final = {
    "quiet": "ends its jobs and takes no new ones.",
    "resume": "takes jobs again.",
    "stop": "ends its jobs and leaves.",
    "restart": "ends its jobs and leaves; its process manager starts it again.",
}


async def ask_order(house: House, visit: Visit) -> Question | None:
    """Ask for confirmation before a worker is made quiet, stopped or restarted. Resuming needs no confirmation."""
    order = _order(visit)
    if order not in _ORDERS:
        return None
    worker = await _worker(house, visit)
    runs = sum(runs for one in worker.processes if isinstance(runs := one.about.get("runs"), int))
    title, what, button = _ORDERS[order]
    jobs = f"the {plural(runs, 'job')} that {'runs' if runs == 1 else 'run'} there" if runs else "what it runs"
    return Question(title.format(worker.name), what.format(jobs), button, "/workers")


async def order(house: House, visit: Visit) -> Response:
    """POST /workers/{order}"""
    word, worker = _order(visit), await _worker(house, visit)
    await note(house, visit, f"worker {word}", worker.name)
    await house.client.order_worker(worker.name, word)
    house.health.forget()
    return back(house, visit, "/workers", f"The worker {worker.name} {_TOLD[word]}")


def _order(visit: Visit) -> WorkerOrder:
    """What the worker shall do. Raises `InvalidInput`."""
    word = visit.request.path_params["order"]
    if word not in tuple(WorkerOrder):
        raise InvalidInput(f"{word!r} is no order for a worker.", hint=f"There are: {', '.join(WorkerOrder)}.")
    return WorkerOrder(word)


async def _worker(house: House, visit: Visit) -> Fleet:
    """The worker that the form names. Raises `WorkerNotFound`, and `WrongQueue` when it serves other queues too."""
    name = visit.filled("worker")
    found = [one for one in await house.client.workers() if name in (one.name, one.worker)]
    if not found:
        raise WorkerNotFound(f"No live worker is called {shown(name)}.", hint="It has left already, or was killed.")
    for queue in found[0].queues:
        visit.queue(queue)
    return Fleet(found[0].worker or name, tuple(found), whole=True)


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


async def batches(house: House, visit: Visit) -> Response:
    """GET /batches"""
    all_queues(visit)
    told = {"now_ms": await house.now_ms(), "batches": await house.client.batches.list(LISTED)}
    return await show(house, visit, "batches.html", told)


async def batch(house: House, visit: Visit) -> Response:
    """GET /batch?id=…"""
    all_queues(visit)
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
    all_queues(visit)
    info = await house.client.batches.get(visit.filled("id"))
    left = plural(info.pending, "job")
    what = f"{left} of {info.total:,} have not ended. Those that have not started will not run; there is no undo."
    title = f"Cancel the rest of the batch {info.name or info.id}?"
    return Question(title, what, f"Cancel {left}", link("/batch", id=info.id), needs_reason=True)


async def cancel_batch(house: House, visit: Visit) -> Response:
    """POST /batch/cancel"""
    all_queues(visit)
    name = visit.filled("id")
    await note(house, visit, "batch cancel", name)
    info = await house.client.batches.cancel(name)
    return back(house, visit, link("/batch", id=name), f"Nothing of it starts any more; {info.pending:,} are left.")


async def retry_batch(house: House, visit: Visit) -> Response:
    """POST /batch/retry"""
    all_queues(visit)
    name = visit.filled("id")
    await note(house, visit, "batch retry", name)
    number = await house.client.batches.retry(name)
    return back(house, visit, link("/batch", id=name), f"{plural(number, 'member')} will be retried.")
