"""The page of one job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import RedirectResponse, Response

from delayq.core.errors import JobNotFound
from delayq.core.names import check_id
from delayq.core.views import JobInfo
from delayq.core.why import explain
from delayq.http.dashboard.house import House
from delayq.http.dashboard.job_view import view
from delayq.http.dashboard.live import Parts, Watched
from delayq.http.dashboard.pages import show
from delayq.http.dashboard.timeline import steps
from delayq.http.dashboard.visit import Visit, job_link
from delayq.redis.reasons import OPEN, around


async def page(house: House, visit: Visit) -> Response:
    """GET /job?queue=…&id=…; without a queue it is looked for in all of them."""
    job_id = check_id(visit.asked("id"))
    if not visit.asked("queue"):
        found = await find(house, visit, job_id)
        return RedirectResponse(job_link(found.queue, job_id), 303)
    queue = visit.queue(visit.asked("queue"))
    return await show(house, visit, "job.html", {**await told(house, queue, job_id), **_typed(visit, {})})


async def again(house: House, visit: Visit, queue: str, job_id: str, wrong: Mapping[str, str]) -> Response:
    """The same page after a form with mistakes: what was typed, and what is wrong with it, by the field's name."""
    told_of = {**await told(house, queue, job_id), **_typed(visit, wrong)}
    said = {"said": "Nothing was changed.", "here": job_link(queue, job_id)}
    return await show(house, visit, "job.html", {**told_of, **said}, 400)


def _typed(visit: Visit, wrong: Mapping[str, str]) -> dict[str, Any]:
    """What was typed into the forms for a new due time and for another payload."""
    return {"wrong": wrong, "typed": {name: visit.filled(name) for name in ("in", "at", "zone", "data", "reason")}}


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
    workers = tuple(await client.workers()) if info.state in OPEN else ()
    findings = await house.health.findings([queue])
    about = await client.run(around(client.verbs, info, workers))
    return {
        "now_ms": stats.now_ms,
        "job": view(info, house.redaction),
        "info": info,
        "steps": steps(info, stats.now_ms, workers, keep_failed_ms=client.options.keep_failed_ms),
        "reasons": explain(info, stats, findings, high_water=client.options.high_water, around=about),
    }
