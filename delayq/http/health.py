"""Is the process alive, and can it serve? For orchestrators; no key is asked for, and nothing is told but that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Response

from delayq.core.errors import BackendError
from delayq.core.views import QueueStats
from delayq.http.answers import answer
from delayq.http.api.models.health import Alive, Ready
from delayq.http.documented import answers
from delayq.http.service import Served, Service

router = APIRouter(tags=["health"])
MOVER_AFTER_MS: Final = 10_000
"""A mover looks every second; one that was not there for so long stands still."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the server can serve, and the sentences that say why not."""

    ready: bool
    why: tuple[str, ...] = ()


@router.get("/livez", summary="Does the process answer?", responses=answers({200: ("It does.", Alive)}))
async def livez() -> Response:
    """Always 200 while the process answers at all."""
    return answer({"alive": True})


@router.get("/readyz", summary="Can it serve?", responses=answers({200: ("Yes.", Ready), 503: ("No, and why.", Ready)}))
@router.get("/healthz", include_in_schema=False)
async def readyz(service: Served) -> Response:
    """200, or 503 when Redis does not answer, a mover stands still, or jobs are overdue for too long."""
    verdict = await look(service)
    shape = {"ready": verdict.ready, "why": verdict.why}
    return answer(shape, 200 if verdict.ready else 503, {} if verdict.ready else {"Retry-After": "2"})


async def look(service: Service) -> Verdict:
    """Ask Redis."""
    try:
        stats = await service.client.stats()
    except BackendError as error:
        return Verdict(False, (error.message,))
    limit_ms = service.settings.max_overdue_ms
    looked_ms = max((one.mover_tick_ms for one in stats), default=0)
    why = [sentence for one in stats for sentence in complaints(one, limit_ms, looked_ms)]
    return Verdict(not why, tuple(why))


def complaints(stats: QueueStats, limit_ms: int, looked_ms: int = 0) -> list[str]:
    """What is wrong with a queue; a paused one waits on purpose.

    `looked_ms` is when a mover last looked at any queue: a new one, that none has seen yet, is theirs in a second.
    """
    if stats.paused or not stats.scheduled + stats.ready:
        return []
    said = []
    still_ms = stats.now_ms - (stats.mover_tick_ms or looked_ms)
    if stats.scheduled and still_ms > MOVER_AFTER_MS:
        for_s = f"No mover looked at the queue {stats.queue} for {still_ms // 1000} s."
        said.append(for_s if stats.mover_tick_ms else f"No mover ever looked at the queue {stats.queue}.")
    if stats.overdue_oldest_ms > limit_ms:
        said.append(f"The oldest job of {stats.queue} is overdue by {stats.overdue_oldest_ms // 1000} s.")
    return said
