"""The page of one job."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import RedirectResponse, Response

from delayq.core.errors import JobNotFound
from delayq.core.follow import readable_part
from delayq.core.names import check_id
from delayq.core.states import State
from delayq.core.views import JobInfo, WorkerInfo
from delayq.core.why import Around, explain
from delayq.http.dashboard.house import House
from delayq.http.dashboard.job_view import view
from delayq.http.dashboard.live import Parts, Watched
from delayq.http.dashboard.pages import show
from delayq.http.dashboard.timeline import steps
from delayq.http.dashboard.visit import Visit, job_link
from delayq.redis.called_off import called_off
from delayq.redis.held_up import held_up

_WAITS: Final = (State.SCHEDULED, State.READY)
_OPEN: Final = (*_WAITS, State.RESERVED)


async def page(house: House, visit: Visit) -> Response:
    """GET /job?queue=…&id=…; without a queue it is looked for in all of them."""
    job_id = check_id(visit.asked("id"))
    if not visit.asked("queue"):
        found = await find(house, visit, job_id)
        return RedirectResponse(job_link(found.queue, job_id), 303)
    queue = visit.queue(visit.asked("queue"))
    return await show(house, visit, "job.html", await told(house, queue, job_id))


async def find(house: House, visit: Visit, job_id: str) -> JobInfo:
    """The job in the first queue that has it. Raises `JobNotFound`."""
    for queue in visit.viewer.of(await house.client.queues()):
        info = await house.client.get(job_id, queue=queue)
        if info is not None:
            return info
    raise JobNotFound(f"No queue knows a job {job_id!r}.", hint="It may be done and forgotten already.")


async def parts(house: House, watched: Watched) -> Parts:
    """The parts that change; of a job that is gone, that it is."""
    try:
        said = await told(house, watched.queue, watched.job)
    except JobNotFound:
        return {"job_state": house.renderer.text("parts/job_gone.html", {})}
    names = ("job_state", "job_progress", "job_why", "job_timeline", "job_attempts")
    return {name: house.renderer.text(f"parts/{name}.html", said) for name in names}


async def told(house: House, queue: str, job_id: str) -> dict[str, Any]:
    """What both are made of. Raises `JobNotFound`."""
    client = house.client
    info = await client.get(job_id, queue=queue)
    if info is None:
        raise JobNotFound(
            f"The queue {queue} knows no job {job_id!r}.",
            hint="It is done and was not kept, was cancelled or forgotten; it lies in another queue; "
            "or it is a later link of a chain, which is made when its turn comes.",
        )
    [stats] = await client.stats(info.queue)
    workers = tuple(await client.workers()) if info.state in _OPEN else ()
    findings = await house.health.findings()
    around = await _around(house, info, workers)
    return {
        "now_ms": stats.now_ms,
        "job": view(info, house.redaction),
        "info": info,
        "steps": steps(info, stats.now_ms, workers),
        "reasons": explain(info, stats, findings, high_water=client.options.high_water, around=around),
    }


async def _around(house: House, info: JobInfo, workers: tuple[WorkerInfo, ...]) -> Around:
    """What may keep it from running besides its queue: limits, its batch, its workers."""
    client, verbs = house.client, house.client.verbs
    if info.state not in _WAITS or info.envelope is None:
        return Around(workers=workers)
    limits = await client.run(held_up(verbs, info.queue, info.id, info.name))
    part = readable_part(info.envelope)
    off = False
    if part is not None and part.batch is not None:
        off = await client.run(called_off(verbs, part.batch, info.id, part.spared))
    return Around(tuple(limits), workers, off)
