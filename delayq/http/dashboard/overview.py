"""The first page: how it goes, what comes, what is wrong. And the parts that it has in common with others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from starlette.responses import Response

from delayq.core.activity import HISTORY_DAYS
from delayq.core.api_keys import Scope, covers
from delayq.core.browsing import Sought
from delayq.core.diagnosis import Finding
from delayq.core.states import State
from delayq.core.views import JobInfo, QueueStats, urgency
from delayq.http.dashboard import flow
from delayq.http.dashboard.house import House, of_each
from delayq.http.dashboard.live import Parts, Watched
from delayq.http.dashboard.pages import show
from delayq.http.dashboard.visit import Visit
from delayq.redis.activity import history
from delayq.redis.browse import browse

LATELY = 6
"""Jobs in the short lists."""
SHOWN = 50
"""Queues on the first page: with more, those that matter most."""


async def page(house: House, visit: Visit) -> Response:
    """GET /"""
    return await show(house, visit, "overview.html", await page_told(house, visit))


async def page_told(house: House, visit: Visit, wrong: str = "", typed: str = "") -> dict[str, Any]:
    """What the page is made of: its parts, the days, which change too seldom to be read each second, and the form."""
    found = await told(house, visit.viewer.queues, visit.viewer.role)
    names = [one.queue for one in found["stats"]]
    days = await house.client.run(history(house.client.verbs, names, HISTORY_DAYS))
    return {**found, "history": flow.history(days), "wrong": wrong, "typed": typed}


async def parts(house: House, watched: Watched) -> Parts:
    """The parts that change."""
    said = await told(house, watched.queues, watched.role)
    names = ("switches", "findings", "figures", "charts", "queue_table", "lately")
    return {name: house.renderer.text(f"parts/{name}.html", said) for name in names}


async def told(house: House, allowed: tuple[str, ...], role: str) -> dict[str, Any]:
    """What both are made of."""
    client = house.client
    stats = await house.stats(allowed)
    now_ms = await house.now_ms()
    shown = stats if len(stats) <= SHOWN else sorted(stats, key=urgency)[:SHOWN]
    names = [one.queue for one in shown]
    upcoming = await of_each(names, client.upcoming)
    activity = flow.together(await of_each(names, client.activity), now_ms)
    workers = await client.workers()
    return {
        "now_ms": now_ms,
        "control": await client.control(),
        "admin": role == Scope.ADMIN and not allowed,
        "findings": visible(await house.health.findings(names if len(shown) < len(stats) else None), allowed),
        "stats": shown,
        "left_out": len(stats) - len(shown),
        "sums": sums(stats),
        "pulse": flow.pulse(activity),
        "workers": [one for one in workers if any(covers(allowed, name) for name in one.queues)],
        "charts": [
            flow.falling_due(upcoming, now_ms),
            flow.throughput(activity),
            flow.lateness(activity),
            flow.backlog(activity, shown),
        ],
        "next_due": await first(house, names, State.SCHEDULED),
        "by_error": "/failed/groups",
        "last_failed": await first(house, names, State.FAILED),
    }


async def first(house: House, names: Sequence[str], state: State, limit: int = LATELY) -> tuple[JobInfo, ...]:
    """The next ones that fall due, or the last ones that failed."""
    sought = Sought(state, tuple(names), newest=state is not State.SCHEDULED, limit=limit)
    return (await house.client.run(browse(house.client.verbs, sought))).jobs


def sums(stats: Iterable[QueueStats]) -> dict[str, int]:
    """All queues together."""
    names = ("scheduled", "ready", "reserved", "failed", "completed")
    found = dict.fromkeys(names, 0) | {"overdue_ms": 0, "paused": 0}
    for one in stats:
        for name in names:
            found[name] += getattr(one, name)
        found["overdue_ms"] = max(found["overdue_ms"], one.overdue_oldest_ms)
        found["paused"] += one.paused
    return found


def visible(findings: Iterable[Finding], allowed: tuple[str, ...]) -> list[Finding]:
    """Those that concern everything, or a queue that may be seen."""
    return [
        one
        for one in findings
        if not one.where.startswith("queue ") or covers(allowed, one.where.removeprefix("queue "))
    ]
