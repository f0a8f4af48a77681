"""/v1/queues: how much of each queue is in which state; paused, resumed, and what falls due when."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from delayq.core import shapes
from delayq.core.durations import duration_ms
from delayq.core.errors import InvalidInput
from delayq.http import blame
from delayq.http.access import Admin, Reader
from delayq.http.answers import answer
from delayq.http.api.models.queues import Pause, Paused, QueueInFull, QueueList, Removed, Upcoming, Why
from delayq.http.bodies import invalid, read_any
from delayq.http.documented import answers, takes
from delayq.http.new_queues import admit
from delayq.http.places import MOST_ROWS, QueueName, Rows, place
from delayq.http.problems import Refused, plain
from delayq.http.service import Served
from delayq.redis.whole import stats_of

router = APIRouter(prefix="/v1/queues", tags=["queues"])
After = Annotated[str, Query(max_length=128, description="Begin behind the queue of this name.")]


@router.get("", summary="All queues", responses=answers({200: ("All that the key may see.", QueueList)}))
async def list_queues(service: Served, caller: Reader, limit: Rows = MOST_ROWS, after: After = "") -> Response:
    """How many jobs are in which state, queue by queue in the order of their names.

    `next` is the name to give as `after` for the next page; null at the end.
    """
    names = [name for name in await service.client.queues() if caller.sees(name) and name > after]
    found = await service.client.run(stats_of(service.client.verbs, names[:limit]))
    following = names[limit - 1] if len(names) > limit else None
    return answer({"queues": [shapes.queue(one) for one in found], "next": following})


@router.get("/{queue}", summary="One queue", responses=answers({200: ("In full.", QueueInFull)}))
async def show(service: Served, caller: Reader, queue: QueueName) -> Response:
    """How many jobs are in which state, what the queue keeps for itself, and what it has counted."""
    name = place(service, caller, queue)
    if name not in await service.client.queues():
        raise Refused(plain(404, f"No queue {name} is known.", "A queue is known from its first job on."))
    [stats] = await service.client.stats(name)
    view = await service.client.queue_show(name)
    more = {
        "lease_ms": view.lease_ms,
        "durability": await service.client.queue_durability(name),
        "shards": view.shards,
        "paused_until_ms": stats.paused_until_ms,
        "counters": stats.counters,
    }
    return answer({**shapes.queue(stats), **more})


@router.delete("/{queue}", summary="Remove a queue", responses=answers({200: ("It is forgotten.", Removed)}))
async def remove(service: Served, caller: Admin, queue: QueueName) -> Response:
    """Refused (409) while it holds a job in any state or a live worker serves it. A later job makes it anew."""
    name = place(service, caller, queue)
    await service.record(caller, "queue remove", name)
    await service.client.queue_remove(name)
    return answer({"queue": name, "removed": True})


@router.post(
    "/{queue}/pause",
    summary="Pause a queue",
    openapi_extra=takes(Pause, {"length": "10m", "reason": "the bank is away"}, required=False),
    responses=answers({200: ("It rests.", Paused)}),
)
async def pause(request: Request, service: Served, caller: Admin, queue: QueueName) -> Response:
    """Nothing of it becomes ready and no worker of delayq's takes any of it, for a time or until resumed."""
    name, asked = place(service, caller, queue), await read_any(request, Pause)
    with blame.told_by(asked):
        if asked.length is not None:
            duration_ms(asked.length)
        await admit(service, caller, name)
        await service.record(caller, "pause", name, detail=asked.length or "", reason=asked.reason or "")
        until_ms = await service.client.pause(name, length=asked.length)
    return answer(shapes.paused(name, until_ms))


@router.post(
    "/{queue}/resume",
    summary="Resume a queue",
    openapi_extra=takes(Why, {"reason": "the bank is back"}, required=False),
    responses=answers({200: ("It goes on.", Paused)}),
)
async def resume(request: Request, service: Served, caller: Admin, queue: QueueName) -> Response:
    """Undo a pause; also where there was none."""
    name, asked = place(service, caller, queue), await read_any(request, Why)
    with blame.told_by(asked):
        await admit(service, caller, name)
        await service.record(caller, "resume", name, reason=asked.reason or "")
        await service.client.resume(name)
    return answer(shapes.paused(name, None))


@router.get("/{queue}/upcoming", summary="What falls due when", responses=answers({200: ("Counts.", Upcoming)}))
async def upcoming(
    service: Served,
    caller: Reader,
    queue: QueueName,
    span: Annotated[str, Query(max_length=64, description="How long each span is.", examples=["1m"])] = "1m",
    spans: Annotated[int, Query(ge=1, le=500, description="How many spans.")] = 60,
) -> Response:
    """How many jobs fall due in each span of time from now on."""
    name = place(service, caller, queue)
    try:
        found = await service.client.upcoming(name, span=span, spans=spans)
    except InvalidInput as error:
        raise Refused(invalid("?span", error.message, error.hint, "invalid-duration")) from error
    return answer(shapes.upcoming(found))
