"""/v1/workers, /v1/audit: who works, and who did what."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from delayq.core import shapes
from delayq.http.access import Admin, Reader
from delayq.http.answers import answer
from delayq.http.api.models.queues import Deeds, Workers
from delayq.http.documented import answers
from delayq.http.service import Served

router = APIRouter(prefix="/v1", tags=["workers"])


@router.get("/workers", summary="The workers that are here", responses=answers({200: ("All of them.", Workers)}))
async def workers(service: Served, caller: Reader) -> Response:
    """Those that said so lately, with what they run. A key for some queues sees the workers that serve one of them."""
    found = await service.client.workers()
    return answer({"workers": [shapes.worker(one) for one in found if any(map(caller.sees, one.queues))]})


@router.get("/audit", summary="Who did what", responses=answers({200: ("The newest first.", Deeds)}))
async def audit(service: Served, caller: Admin, limit: Annotated[int, Query(ge=1, le=1_000)] = 100) -> Response:
    """What was done by hand, over API, pages and command line; jobs that were made or served are not among it."""
    return answer({"deeds": [shapes.deed(one) for one in await service.client.audit_log.last(limit)]})
