"""All queues, and one of them; pause, resume and remove."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.responses import Response

from delayq.core.activity import HISTORY_DAYS
from delayq.core.durations import duration_ms
from delayq.core.errors import InvalidInput, QueueInUse
from delayq.core.states import State
from delayq.http import outcomes
from delayq.http.dashboard import flow
from delayq.http.dashboard.confirm import Question
from delayq.http.dashboard.deeds import note
from delayq.http.dashboard.house import House
from delayq.http.dashboard.live import Parts, Watched
from delayq.http.dashboard.overview import first
from delayq.http.dashboard.pages import back, show
from delayq.http.dashboard.visit import Visit, link
from delayq.http.dashboard.wording import plural, span
from delayq.redis.whole import stats_of

PAGE: Final = 100


async def all_queues(house: House, visit: Visit) -> Response:
    """GET /queues"""
    after, find = visit.asked("after"), visit.asked("find")
    return await show(house, visit, "queues.html", await told(house, visit.viewer.queues, after, find))


async def parts(house: House, watched: Watched) -> Parts:
    """What changes on that page."""
    said = await told(house, watched.queues, watched.after, watched.find)
    return {"queue_table": house.renderer.text("parts/queue_table.html", said)}


async def told(house: House, allowed: tuple[str, ...], after: str, find: str) -> dict[str, Any]:
    """What both are made of: a page of queues behind the name `after`, with `find` in their names."""
    names = [name for name in await house.queues(allowed) if find.lower() in name.lower()]
    page = [name for name in names if name > after][: PAGE + 1]
    stats = await house.client.run(stats_of(house.client.verbs, page[:PAGE]))
    return {
        "stats": stats,
        "left_out": 0,
        "total": len(names),
        "after": after,
        "find": find,
        "next": page[PAGE - 1] if len(page) > PAGE else "",
        "paged": bool(after or find) or len(page) > PAGE,
        "now_ms": stats[0].now_ms if stats else await house.now_ms(),
    }


async def one_queue(house: House, visit: Visit) -> Response:
    """GET /queues/{queue}"""
    queue = visit.queue(visit.request.path_params["queue"])
    return await show(house, visit, "queue.html", {**await queue_told(house, queue), "wrong": "", "typed": ""})


async def queue_parts(house: House, watched: Watched) -> Parts:
    """What changes on the page of one queue."""
    said = await queue_told(house, watched.queue)
    names = ("findings", "queue_figures", "charts", "lately")
    return {name: house.renderer.text(f"parts/{name}.html", said) for name in names}


async def queue_told(house: House, queue: str) -> dict[str, Any]:
    """What the page of one queue is made of."""
    client = house.client
    [stats] = await client.stats(queue)
    upcoming, activity, history, shown = await asyncio.gather(
        client.upcoming(queue),
        client.activity(queue),
        client.activity(queue, days=HISTORY_DAYS),
        client.queue_show(queue),
    )
    workers = [one for one in await client.workers() if queue in one.queues]
    findings = await house.health.findings([queue])
    return {
        "now_ms": stats.now_ms,
        "one": stats,
        "shown": shown,
        "durability": await client.queue_durability(queue),
        "pulse": flow.pulse(activity),
        "findings": [found for found in findings if found.where == f"queue {queue}"],
        "workers": workers,
        "charts": [
            flow.falling_due([upcoming], stats.now_ms),
            flow.throughput(activity),
            flow.lateness(activity),
            flow.backlog(activity, [stats]),
            flow.history(history),
        ],
        "next_due": await first(house, [queue], State.SCHEDULED),
        "by_error": link("/failed/groups", queue=queue),
        "last_failed": await first(house, [queue], State.FAILED),
    }


async def ask_pause(house: House, visit: Visit) -> Question | Response:
    """The question before a pause; the queue's page again for a duration that is mistyped."""
    queue, length = visit.queue(visit.request.path_params["queue"]), visit.filled("length")
    page = f"/queues/{queue}"
    try:
        for_ms = duration_ms(length) if length else None
    except InvalidInput as error:
        told = {**await queue_told(house, queue), "wrong": f"{error.message} {error.hint}".rstrip(), "typed": length}
        return await show(house, visit, "queue.html", {**told, "said": "Nothing was changed.", "here": page}, 400)
    until = "until it is resumed" if for_ms is None else f"for {span(for_ms)}"
    [stats] = await house.client.stats(queue)
    what = f"Workers take no job from it meanwhile. {plural(stats.ready, 'job')} of it can start now, "
    what += f"{stats.scheduled:,} wait for their due time. Jobs that run go on."
    return Question(f"Pause the queue {queue} {until}?", what, "Pause queue", page)


async def pause(house: House, visit: Visit) -> Response:
    """POST /queues/{queue}/pause"""
    queue, length = visit.queue(visit.request.path_params["queue"]), visit.filled("length")
    await note(house, visit, "pause", queue, length)
    await house.client.pause(queue, length=length or None)
    house.health.forget()
    until = f"for {length}" if length else "until it is resumed"
    return back(house, visit, f"/queues/{queue}", f"The queue {queue} is paused {until}.")


async def resume(house: House, visit: Visit) -> Response:
    """POST /queues/{queue}/resume"""
    queue = visit.queue(visit.request.path_params["queue"])
    await note(house, visit, "resume", queue)
    await house.client.resume(queue)
    house.health.forget()
    return back(house, visit, f"/queues/{queue}", f"The queue {queue} goes on.")


async def ask_remove(house: House, visit: Visit) -> Question:
    """The question before a queue is removed."""
    queue = visit.queue(visit.request.path_params["queue"])
    what = "Its name, settings, counters and history are forgotten. A job that is scheduled later makes it anew."
    return Question(f"Remove the queue {queue}?", what, "Remove queue", f"/queues/{queue}")


async def remove(house: House, visit: Visit) -> Response:
    """POST /queues/{queue}/remove: removes it; the queue's page again, which says why, when it is in use."""
    queue = visit.queue(visit.request.path_params["queue"])
    await note(house, visit, "queue remove", queue)
    try:
        await house.client.queue_remove(queue)
    except QueueInUse as error:
        outcomes.refused(error.message)
        told = {**await queue_told(house, queue), "wrong": "", "typed": "", "here": f"/queues/{queue}"}
        said = f"The queue was not removed. {error.message} {error.hint}".rstrip()
        return await show(house, visit, "queue.html", {**told, "said": said}, 409)
    house.health.forget()
    return back(house, visit, "/queues", f"The queue {queue} is removed.")
