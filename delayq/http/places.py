"""Parameters that several routes share: a job's id, a queue, a state, a page."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import Path, Query
from pydantic import BeforeValidator

from delayq.core.errors import InvalidName
from delayq.http.access import Caller
from delayq.http.limits import SLASH
from delayq.http.problems import Problem, Refused, Wrong, of_error
from delayq.http.service import Service

MOST_ROWS: Final = 500
ROWS: Final = 50
_QUEUE: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"

Id = Annotated[
    str,
    Path(
        description="The job's id, percent-encoded where a URL needs it.",
        examples=["order-42"],
        pattern=r"^[\x21-\x7e]{1,255}$",
    ),
    BeforeValidator(lambda text: text.replace(SLASH, "/")),
]
OneQueue = Annotated[
    str | None,
    Query(description="The queue; without it, the default one. It is never searched.", pattern=_QUEUE),
]
AnyQueue = Annotated[str | None, Query(description="This queue only; without it, all.", pattern=_QUEUE)]
QueueName = Annotated[str, Path(description="The queue's name.", examples=["orders"], pattern=_QUEUE)]
StateWord = Literal["scheduled", "ready", "reserved", "failed", "completed"]
Rows = Annotated[int, Query(ge=1, le=MOST_ROWS, description="At most so many.")]
Cursor = Annotated[str, Query(max_length=2_000, description="`next_cursor` of the page before, with the same filters.")]


def place(service: Service, caller: Caller, queue: str | None) -> str:
    """The queue that is meant. Raises `Refused` for one, or one it is forwarded to, that is none of the caller's."""
    name = service.client.options.queue if queue is None else queue
    try:
        caller.enter(service.client.options.sent_to(name))
        return caller.enter(name)
    except InvalidName as error:
        found = of_error(error)
        raise Refused(
            Problem(422, found.kind, f"?queue: {error.message}", error.hint, [Wrong("?queue", error.message)])
        ) from error
