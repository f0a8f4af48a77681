"""Ask before an act that cannot be undone.

POST ──▶ a page with the question ──▶ POST with `confirmed` ──▶ the act

The question is asked by the server, so it is asked with and without JavaScript.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from delayq.http.dashboard.house import House
from delayq.http.dashboard.pages import show
from delayq.http.dashboard.visit import Visit

Answer = Callable[[House, Visit], Awaitable[Response]]
_OWN: Final = ("mark", "confirmed", "reason")


@dataclass(frozen=True, slots=True)
class Question:
    """What the page asks. `button` is the label of the act, `back` the page to return to without it.

    `needs_reason`: the act is refused without a reason, because it changes many jobs.
    """

    title: str
    what: str
    button: str
    back: str
    needs_reason: bool = False


Ask = Callable[[House, Visit], Awaitable[Question | Response | None]]
"""Returns the question; a page, when the form is mistyped; None, when the act needs no question."""


def confirmed(ask: Ask, act: Answer) -> Answer:
    """Return `act` with a question before it."""

    async def handle(house: House, visit: Visit) -> Response:
        question = await ask(house, visit)
        if isinstance(question, Response):
            return question
        if question is None:
            return await act(house, visit)
        wrong = ""
        if visit.filled("confirmed"):
            if visit.filled("reason") or not question.needs_reason:
                return await act(house, visit)
            wrong = "An act on many jobs needs a reason."
        kept = [(name, value) for name, values in visit.form.items() if name not in _OWN for value in values]
        told = {"question": question, "kept": kept, "wrong": wrong, "here": question.back}
        return await show(house, visit, "confirm.html", told, 400 if wrong else 200)

    return handle
