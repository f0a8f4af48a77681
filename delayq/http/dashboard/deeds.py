"""Writes down who did what, before it is done."""

from __future__ import annotations

from delayq.http.dashboard.house import House
from delayq.http.dashboard.visit import Visit


async def note(house: House, visit: Visit, what: str, target: str, detail: str = "") -> None:
    """Put it into the audit log. `what` is a verb of delayq, `target` what it is done to.

    Raises `InvalidInput` for a reason that is too long; none is needed.
    """
    await house.service.record(visit.viewer.caller, what, target, detail=detail, reason=visit.filled("reason"))
