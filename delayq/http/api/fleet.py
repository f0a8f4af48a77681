"""/v1/workers, /v1/audit: who works, and who did what."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from delayq.core import shapes
from delayq.http.access import Admin, Caller, Reader
from delayq.http.answers import answer
from delayq.http.api.models.queues import Deeds, Workers
from delayq.http.documented import answers
from delayq.http.problems import Refused, plain
from delayq.http.service import Served

router = APIRouter(prefix="/v1", tags=["workers"])


@router.get("/workers", summary="The workers that are here", responses=answers({200: ("All of them.", Workers)}))
async def workers(service: Served, caller: Reader) -> Response:
    """Those that said so lately, with what they run. A key for some queues sees the workers that serve one of them,
    and of these what belongs to its queues; the names of their jobs only where all their queues are its own."""
    found = await service.client.workers()
    return answer(
        {"workers": [_seen(shapes.worker(one), caller) for one in found if any(map(caller.sees, one.queues))]}
    )


@router.get("/audit", summary="Who did what", responses=answers({200: ("The newest first.", Deeds)}))
async def audit(service: Served, caller: Admin, limit: Annotated[int, Query(ge=1, le=1_000)] = 100) -> Response:
    """What was done by hand, over API, pages and command line; jobs that were made or served are not among it.

    It is of all queues, so a key for some queues gets 403."""
    if caller.key is not None and caller.key.queues:
        raise Refused(plain(403, "The audit log is of all queues, and this key is for some of them."))
    return answer({"deeds": [shapes.deed(one) for one in await service.client.audit_log.last(limit)]})


def _seen(worker: dict[str, Any], caller: Caller) -> dict[str, Any]:
    """A worker without what belongs to queues that the caller does not see."""
    if all(map(caller.sees, worker["queues"])):
        return worker
    seen = {**worker, "queues": [queue for queue in worker["queues"] if caller.sees(queue)]}
    seen.pop("jobs", None)
    running = worker.get("running")
    rows = [row for row in running if isinstance(row, dict)] if isinstance(running, list) else []
    seen["running"] = [row for row in rows if isinstance(row.get("queue"), str) and caller.sees(row["queue"])]
    return seen
