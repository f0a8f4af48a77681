"""Writes down who did what, before it is done."""

from __future__ import annotations

from delayq.core.audit import Deed
from delayq.http.dashboard.house import House
from delayq.http.dashboard.visit import Visit
from delayq.redis.audit import Audit


async def note(house: House, visit: Visit, what: str, target: str, detail: str = "") -> None:
    """Put it into the audit log. `what` is a verb of delayq, `target` what it is done to."""
    reason = visit.filled("reason") or "no reason given"
    deed = Deed(what, target, f"{visit.viewer.name}, on the page: {reason}", detail)
    await house.client.run(Audit(house.client.verbs).record(deed))
