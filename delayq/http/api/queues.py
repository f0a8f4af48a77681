"""/v1/queues: how much of each queue is in which state."""

from __future__ import annotations

from fastapi import APIRouter, Response

from delayq.core import shapes
from delayq.http.access import Reader
from delayq.http.answers import answer
from delayq.http.service import Served

router = APIRouter(prefix="/v1/queues", tags=["queues"])


@router.get("", summary="All queues")
async def list_queues(service: Served, caller: Reader) -> Response:
    """Every queue there is, and how many jobs are in which state."""
    found = await service.client.stats()
    return answer({"queues": [shapes.queue(one) for one in found if caller.sees(one.queue)]})
