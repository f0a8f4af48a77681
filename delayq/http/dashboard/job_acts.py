"""What people do with one job, from its page or from a list."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.responses import Response

from delayq.core.durations import duration_ms
from delayq.core.envelope import check_data
from delayq.core.errors import InvalidInput, InvalidPayload
from delayq.core.names import check_id
from delayq.core.states import Answer
from delayq.core.when import format_instant, instant_ms
from delayq.http import outcomes
from delayq.http.dashboard import job_page
from delayq.http.dashboard.confirm import Question
from delayq.http.dashboard.deeds import note
from delayq.http.dashboard.house import House
from delayq.http.dashboard.login import inside
from delayq.http.dashboard.pages import back
from delayq.http.dashboard.payload import COVER
from delayq.http.dashboard.visit import Visit, job_link, link

_SURE: Final = {
    "cancel": ("Cancel the job {}?", "It will not run. Its payload is deleted; there is no undo.", "Cancel job"),
    "stop": (
        "Ask the running job {} to stop?",
        "Its worker passes this on, and the handler stops where it checks for it. What it has done so far stays done.",
        "Ask job to stop",
    ),
    "forget": ("Forget the job {}?", "Its payload, errors and result are deleted; there is no undo.", "Forget job"),
}
"""Acts that are confirmed: the question, what the act does, and its button."""

Deed = Callable[[House, Visit, str, str], Awaitable[str]]


async def ask(house: House, visit: Visit) -> Question | Response | None:
    """The question before an act without undo; the job's page again for a due time that is mistyped."""
    name = visit.request.path_params["act"]
    queue, job_id = visit.queue(visit.filled("queue")), check_id(visit.filled("id"))
    if name == "reschedule":
        wrong = await _mistyped(house, visit)
        return await job_page.again(house, visit, queue, job_id, wrong) if wrong else None
    if name == "edit":
        try:
            await _typed(house, visit, queue, job_id)
        except InvalidPayload as error:
            wrong = {"data": f"{error.message} {error.hint}".rstrip()}
            return await job_page.again(house, visit, queue, job_id, wrong)
        return None
    if name not in _SURE:
        return None
    title, what, button = _SURE[name]
    info = await house.client.get(job_id, queue=queue)
    named = f"{info.name} {job_id}" if info is not None and info.name else job_id
    return Question(title.format(named), what, button, _after(visit, job_link(queue, job_id)))


async def _mistyped(house: House, visit: Visit) -> dict[str, str]:
    """What is wrong with the fields of a new due time, by the name of the field."""
    delay, at, zone = visit.filled("in"), visit.filled("at"), visit.filled("zone")
    if bool(delay) == bool(at):
        return {"in": "Fill in one of the two: a duration such as 15m, or a date and time."}
    try:
        if delay:
            duration_ms(delay)
        else:
            instant_ms(at, now_ms=await house.now_ms(), tz=zone or None)
    except InvalidInput as error:
        return {"in" if delay else "at": f"{error.message} {error.hint}".rstrip()}
    return {}


def _after(visit: Visit, otherwise: str) -> str:
    """The page that the form names, or the other."""
    return inside(visit.filled("back")) if visit.filled("back") else otherwise


async def act(house: House, visit: Visit) -> Response:
    """POST /job/{act}: does it, and goes back to the page it came from."""
    name = visit.request.path_params["act"]
    deed = DEEDS.get(name)
    if deed is None:
        raise InvalidInput(f"Nothing is called {name}.", hint=f"There are: {', '.join(DEEDS)}.")
    queue, job_id = visit.queue(visit.filled("queue")), check_id(visit.filled("id"))
    how = visit.filled("how") if name == "edit" else ""
    detail = " ".join(word for word in (visit.filled("in"), visit.filled("at"), how) if word)
    await note(house, visit, name.replace("-", " "), f"{queue}/{job_id}", detail)
    sentence = await deed(house, visit, queue, job_id)
    house.health.forget()
    gone = name in ("cancel", "forget")
    otherwise = link("/jobs", queue=queue) if gone else job_link(queue, job_id)
    return back(house, visit, _after(visit, otherwise), sentence)


async def _cancel(house: House, visit: Visit, queue: str, job_id: str) -> str:
    answer = await house.client.cancel(job_id, queue=queue)
    return _cancelled(answer, f"It was not cancelled: the job is {answer}.")


async def _stop(house: House, visit: Visit, queue: str, job_id: str) -> str:
    answer = await house.client.cancel(job_id, queue=queue, running=True)
    if answer is Answer.RUNNING:
        return f"The job {job_id} was asked to stop. It does so when its handler looks."
    return _cancelled(answer, f"It does not run: the job is {answer}.")


def _cancelled(answer: Answer, otherwise: str) -> str:
    """Return what to say of an answer; all but one say that nothing was done."""
    sentence = _CANCELLED.get(answer, otherwise)
    if answer is not Answer.CANCELLED:
        outcomes.refused(sentence)
    return sentence


_CANCELLED: Final = {
    Answer.CANCELLED: "The job was cancelled; nobody will run it.",
    Answer.RUNNING: "It was not cancelled: the job runs already. It can be asked to stop.",
    Answer.UNKNOWN: "It was not cancelled: no such job is known any more.",
}


async def _run_now(house: House, visit: Visit, queue: str, job_id: str) -> str:
    ref = await house.client.run_now(job_id, queue=queue)
    return f"The job {job_id} is due now: it is {ref.state}."


async def _reschedule(house: House, visit: Visit, queue: str, job_id: str) -> str:
    delay, at, zone = visit.filled("in"), visit.filled("at"), visit.filled("zone")
    when: dict[str, Any] = {"delay": delay} if delay else {"at": at, **({"tz": zone} if zone else {})}
    ref = await house.client.reschedule(job_id, queue=queue, **when)
    return f"The job {job_id} is due at {format_instant(ref.due_ms or 0)} now."


async def _retry(house: House, visit: Visit, queue: str, job_id: str) -> str:
    ref = await house.client.retry(job_id, queue=queue)
    return f"The job {job_id} is retried from its first attempt: it is {ref.state}."


async def _edited(house: House, visit: Visit, queue: str, job_id: str) -> str:
    """Retry with the payload that was typed, or schedule a copy with it."""
    data = await _typed(house, visit, queue, job_id)
    if visit.filled("how") == "retry":
        await house.client.retry(job_id, queue=queue, data=data)
        return f"The job {job_id} is retried from its first attempt, with the new payload."
    ref = await house.client.clone(job_id, queue=queue, data=data)
    return f"The copy {ref.id} is {ref.state}."


async def _typed(house: House, visit: Visit, queue: str, job_id: str) -> Any:
    """The payload of the form. A covered value that was left as it is keeps its original. Raises `InvalidPayload`."""
    limit = house.client.options.max_payload
    typed = msgspec.json.decode(check_data(visit.filled("data").encode("utf-8", "replace"), limit))
    info = await house.client.get(job_id, queue=queue)
    original = info.data if info is not None and not info.encrypted else None
    restored = house.redaction.restored(typed, original)
    if COVER in json.dumps(restored, ensure_ascii=False):
        raise InvalidPayload(f"The payload still holds {COVER}.", hint="Write the values that are meant.")
    return restored


async def _forget(house: House, visit: Visit, queue: str, job_id: str) -> str:
    [answer] = await house.client.forget([job_id], queue=queue)
    if answer is Answer.FORGOTTEN:
        return f"The job {job_id} is forgotten."
    outcomes.refused(f"It was not forgotten: {answer}.")
    return f"It was not forgotten: {answer}."


DEEDS: Final[dict[str, Deed]] = {
    "cancel": _cancel,
    "stop": _stop,
    "run-now": _run_now,
    "reschedule": _reschedule,
    "retry": _retry,
    "forget": _forget,
    "edit": _edited,
}
