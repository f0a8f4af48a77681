"""Job types: which job name runs most, is slow, or fails most, in 24 hours or 90 days."""

from __future__ import annotations

import glob
from dataclasses import dataclass, replace
from typing import Final

from starlette.responses import Response

from delayq.core.errors import InvalidInput
from delayq.core.job_types import DAYS, OTHERS, JobType, JobTypes, ordered
from delayq.http.dashboard.house import House
from delayq.http.dashboard.pages import show
from delayq.http.dashboard.visit import Visit, link
from delayq.redis.job_types import job_types

SHOWN: Final = 100
WINDOWS: Final = {"24h": "24 hours", "90d": "90 days"}
COLUMNS: Final = {
    "attempts": "attempts",
    "failure-rate": "failure rate",
    "failures": "failed",
    "p50": "p50",
    "p99": "p99",
    "time": "run time",
}
"""The columns that sort the table, by the names of `ORDERS`."""
_NO_NAME: Final = ("unknown", OTHERS)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address says."""

    queue: str
    window: str
    sort: str

    def link(self, **changes: str) -> str:
        """Return the address of this page with changes; what is the default is left out."""
        new = replace(self, **changes)
        return link(
            "/job-types",
            queue=new.queue,
            window="" if new.window == "24h" else new.window,
            sort="" if new.sort == "attempts" else new.sort,
        )


async def page(house: House, visit: Visit) -> Response:
    """GET /job-types"""
    asked = Asked(visit.asked("queue"), visit.asked("window") or "24h", visit.asked("sort") or "attempts")
    for what, word, known in (("window", asked.window, WINDOWS), ("order", asked.sort, COLUMNS)):
        if word not in known:
            raise InvalidInput(f"There is no {what} {word!r}.", hint=f"Use one of: {', '.join(known)}.")
    names = await house.queues(visit.viewer.queues)
    queue = visit.queue(asked.queue) if asked.queue else None
    days = DAYS if asked.window == "90d" else None
    found: JobTypes = await house.client.run(job_types(house.client.verbs, queue, None, days, None if queue else names))
    told = {
        "now_ms": found.now_ms,
        "asked": asked,
        "names": names,
        "windows": WINDOWS,
        "columns": COLUMNS,
        "found": found,
        "types": ordered(found.types, asked.sort)[:SHOWN],
        "slowest": _first(found, "p99"),
        "failing": _first(found, "failures"),
        "busiest": _first(found, "time"),
        "failures_of": lambda one: _failures_of(one, asked.queue),
    }
    return await show(house, visit, "job_types.html", told)


def _first(found: JobTypes, by: str) -> JobType | None:
    return next(iter(ordered(found.types, by)), None)


def _failures_of(one: JobType, queue: str) -> str:
    """Return the address of the failed jobs of a name; '' where no list can be narrowed to them."""
    if one.name in _NO_NAME:
        return ""
    return link("/failed/groups", name=glob.escape(one.name), queue=queue)
