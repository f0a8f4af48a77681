"""Is the process alive, and can it serve? For orchestrators; no key is asked for, and nothing is told but that."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Response

from delayq.core.errors import BackendError
from delayq.core.standstill import last_look_ms, no_mover
from delayq.core.views import QueueStats
from delayq.http.answers import answer
from delayq.http.api.models.health import Alive, Ready
from delayq.http.documented import answers
from delayq.http.service import Served, Service

router = APIRouter(tags=["health"])


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
    looked_ms = last_look_ms(stats)
    why = [sentence for one in stats for sentence in complaints(one, limit_ms, looked_ms)]
    return Verdict(not why, tuple(why))


def complaints(stats: QueueStats, limit_ms: int, looked_ms: int = 0) -> list[str]:
    """What is wrong with a queue; a paused one waits on purpose. `looked_ms`: when a mover last looked at any."""
    if stats.paused or not stats.scheduled + stats.ready:
        return []
    said = [sentence] if (sentence := no_mover(stats, looked_ms)) else []
    if stats.overdue_oldest_ms > limit_ms:
        said.append(f"The oldest job of {stats.queue} is overdue by {stats.overdue_oldest_ms // 1000} s.")
    return said
