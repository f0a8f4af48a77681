"""Is the process alive, and can it serve? For orchestrators: no key is needed, and without one no queue is named."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Request, Response

from delayq.core.diagnosis import refused
from delayq.core.durations import format_duration
from delayq.core.errors import BackendError
from delayq.core.standstill import STILL_MS, last_look_ms, no_mover
from delayq.core.views import QueueStats, Silent
from delayq.http.access import Caller, identify
from delayq.http.answers import answer
from delayq.http.api.models.health import Alive, Ready
from delayq.http.documented import answers
from delayq.http.problems import Refused
from delayq.http.service import Served, Service
from delayq.redis.server_state import server_states

router = APIRouter(tags=["health"])
MOST_SAID: Final = 20
"""Sentences in one answer."""


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
async def readyz(request: Request, service: Served) -> Response:
    """200, or 503 when Redis is away or refuses writes, no mover runs, dead workers hold jobs, or jobs are overdue for
    too long. Where keys are needed, queues are named to a caller with one, who is also told when the file of keys
    cannot be read; that alone is no 503."""
    service.keys.keys()  # reads the file anew where that is due
    caller = _caller(service, request.headers.get("authorization", ""))
    verdict = await look(service, caller)
    trouble = service.keys.trouble if caller is not None else ""
    shape = {"ready": verdict.ready, "why": (*verdict.why, *filter(None, [trouble]))}
    return answer(shape, 200 if verdict.ready else 503, {} if verdict.ready else {"Retry-After": "2"})


def _caller(service: Service, header: str) -> Caller | None:
    try:
        return identify(service, header)
    except Refused:
        return None


async def look(service: Service, caller: Caller | None = None) -> Verdict:
    """Ask Redis. `caller` None: somebody who is told no name of a queue."""
    client = service.client
    try:
        states = await asyncio.to_thread(server_states, client.connector, client.options.prefix)
        seen = await service.held.last()
    except BackendError as error:
        return Verdict(False, (error.message,))
    limit_ms, looked_ms = service.settings.max_overdue_ms, last_look_ms([one for one, _ in seen])
    why = list(filter(None, map(refused, states)))
    # Movers announce themselves by writes, so where these are refused their silence says nothing.
    for one, held in () if why else seen:
        name = one.queue if caller is not None and caller.sees(one.queue) else ""
        why += complaints(one, limit_ms, looked_ms, held, name)
    said = list(dict.fromkeys(why))
    if len(said) > MOST_SAID:
        said[MOST_SAID:] = [f"{len(said) - MOST_SAID} more sentences are left out."]
    return Verdict(not why, tuple(said))


def complaints(
    stats: QueueStats, limit_ms: int, looked_ms: int = 0, held: Silent | None = None, name: str | None = None
) -> list[str]:
    """What is wrong with a queue; a paused one waits on purpose.

    `looked_ms`: when a mover last looked at any queue. `held`: jobs whose worker is silent. `name`: how the queue is
    called in the sentences; '' does not name it.
    """
    name = stats.queue if name is None else name
    called = f"the queue {name}" if name else "a queue"
    said = []
    if held is not None and held.longest_ms > 2 * stats.lease_ms + STILL_MS:  # longer than a janitor leaves it
        since = format_duration(held.longest_ms // 1000 * 1000)
        said.append(f"A worker of {called} has been silent for {since} and holds jobs; no janitor takes them back.")
    if stats.paused or not stats.scheduled + stats.ready:
        return said
    said += [sentence] if (sentence := no_mover(stats, looked_ms, called)) else []
    if stats.overdue_oldest_ms > limit_ms:
        said.append(f"The oldest job of {name or called} is overdue by {stats.overdue_oldest_ms // 1000} s.")
    return said
