"""What an admin does to all queues at once, from the overview: pause, resume, maintenance."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from delayq.core.durations import duration_ms, span
from delayq.core.errors import InvalidInput
from delayq.http.dashboard import overview
from delayq.http.dashboard.confirm import Question
from delayq.http.dashboard.deeds import note
from delayq.http.dashboard.house import House
from delayq.http.dashboard.pages import back, show
from delayq.http.dashboard.visit import Visit, all_queues
from delayq.http.dashboard.wording import plural

ACTS: Final = {
    "pause": "pause all",
    "resume": "resume all",
    "maintenance": "maintenance on",
    "end-maintenance": "maintenance off",
}
"""Each act by its address, and what the audit log calls it."""


async def ask(house: House, visit: Visit) -> Question | Response | None:
    """The question before everything stops; the overview again for a duration that is mistyped."""
    all_queues(visit)
    act, length = _act(visit), visit.filled("length")
    if act in ("resume", "end-maintenance"):
        return None
    try:
        until = f"for {span(duration_ms(length))}" if length else "until it is ended"
    except InvalidInput as error:
        told = await overview.page_told(house, visit, f"{error.message} {error.hint}".rstrip(), length)
        return await show(house, visit, "overview.html", {**told, "said": "Nothing was changed.", "here": "/"}, 400)
    sums = overview.sums(await house.stats(()))
    queues = plural(len(await house.client.queues()), "queue")
    what = f"Workers take no job from any of the {queues}, nor from queues that come later, {until}. "
    what += f"{plural(sums['ready'], 'job')} can start now, {sums['scheduled']:,} wait for their due time. "
    what += "Jobs that run go on, and scheduling goes on."
    if act == "pause":
        return Question(f"Pause everything {until}?", what, "Pause everything", "/")
    what += " Workers that were started with --force work all the same."
    return Question(f"Start maintenance {until}?", what, "Start maintenance", "/")


async def act(house: House, visit: Visit) -> Response:
    """POST /switch/{act}"""
    all_queues(visit)
    word, length, reason = _act(visit), visit.filled("length") or None, visit.filled("reason")
    await note(house, visit, ACTS[word], "", length or "")
    client = house.client
    if word == "pause":
        await client.pause_all(length=length, reason=reason)
        sentence = "Everything is paused."
    elif word == "maintenance":
        await client.start_maintenance(length=length, reason=reason)
        sentence = "Maintenance has begun."
    elif word == "end-maintenance":
        await client.end_maintenance()
        sentence = "Maintenance has ended."
    else:
        await client.resume_all()
        still = [one.queue for one in await house.stats(()) if one.paused]
        sentence = "Everything goes on."
        if still:
            named = ", ".join(still[:5]) + (", …" if len(still) > 5 else "")
            sentence = f"Everything goes on, but for {plural(len(still), 'queue')} paused by name: {named}."
    house.health.forget()
    return back(house, visit, "/", sentence)


def _act(visit: Visit) -> str:
    """Which of the acts the address names. Raises `InvalidInput`."""
    word: str = visit.request.path_params["act"]
    if word not in ACTS:
        raise InvalidInput(f"{word!r} cannot be done to all queues.", hint=f"There are: {', '.join(ACTS)}.")
    return word
