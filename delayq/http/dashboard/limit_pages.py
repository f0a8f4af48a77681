"""Limits and locks: who holds what, freed by hand; and the log of what was done by hand."""

from __future__ import annotations

from starlette.responses import Response

from delayq.core.audit import AuditEntry
from delayq.http.dashboard.house import House
from delayq.http.dashboard.pages import back, show
from delayq.http.dashboard.visit import NotAllowed, Visit
from delayq.http.dashboard.wording import plural
from delayq.redis.audit import KEPT

LISTED = 200


def _all_queues(visit: Visit) -> None:
    if visit.viewer.queues:
        raise NotAllowed("This page covers all queues, and your key is for some.", hint="It needs a key for all.")


async def limits(house: House, visit: Visit) -> Response:
    """GET /limits"""
    _all_queues(visit)
    told = {
        "now_ms": await house.now_ms(),
        "limits": await house.client.limits.all(),
        "locks": await house.client.locks.all(limit=LISTED),
        "listed": LISTED,
    }
    return await show(house, visit, "limits.html", told)


def _reason(visit: Visit) -> str:
    """Why, and who: the log of these verbs knows the process only."""
    reason = visit.filled("reason")
    return f"{reason} (by {visit.viewer.name})" if reason else ""


async def free_limit(house: House, visit: Visit) -> Response:
    """POST /limits/free"""
    _all_queues(visit)
    name, key, holder = visit.filled("name"), visit.filled("key"), visit.filled("holder")
    freed = await house.client.limits.free(name, key, holder=holder or None, reason=_reason(visit))
    said = [f"{plural(len(freed.holders), 'place')} of {name} {key}".rstrip()]
    said += [word for word, done in (("its rate", freed.rate), ("its circuit", freed.circuit)) if done]
    return back(house, visit, "/limits", f"Free now: {', '.join(said)}.")


async def free_lock(house: House, visit: Visit) -> Response:
    """POST /locks/free"""
    _all_queues(visit)
    lock, queue = visit.filled("lock"), visit.queue(visit.filled("queue"))
    view = await house.client.locks.free(lock, queue=queue, reason=_reason(visit))
    return back(house, visit, "/limits", f"The lock that {view.owner} held in {queue} is free.")


async def audit(house: House, visit: Visit) -> Response:
    """GET /audit"""
    _all_queues(visit)
    find = visit.asked("find")
    entries = await house.client.audit_log.last(KEPT if find else LISTED)
    found = [one for one in entries if find.lower() in _words(one).lower()][:LISTED]
    told = {"now_ms": await house.now_ms(), "entries": found, "listed": LISTED, "find": find}
    return await show(house, visit, "audit.html", told)


def _words(one: AuditEntry) -> str:
    """What an entry is searched by."""
    return "\n".join((one.who, one.door, one.what, one.target, one.detail, one.reason, one.outcome, one.refusal))
