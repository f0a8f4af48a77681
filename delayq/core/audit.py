"""What people did by hand, as it is kept: who, through which door, what, to what, why, when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from delayq.core.errors import InvalidInput

MAX_REASON: Final = 500


class Door(StrEnum):
    """Where somebody came in: a program with a client, the command line, the HTTP API, its pages."""

    PROGRAM = "program"
    CLI = "cli"
    API = "api"
    PAGE = "page"


@dataclass(frozen=True, slots=True)
class Deed:
    """Something to be done by hand. `what` is a verb of delayq ('limit free'), `target` what it is done to.

    `who` '': the user of this process. `door` None: as the client that writes it down.
    """

    what: str
    target: str
    reason: str = ""
    detail: str = ""
    who: str = ""
    door: Door | None = None


class Outcome(StrEnum):
    """How a deed ended. `UNKNOWN`: Redis or the process was gone before that was written down, or it still goes on."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Noted:
    """A deed that is on record and has not ended: the id of its entry, and why it was refused, '' = it was not."""

    id: str
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A deed on record, and how it ended: `refusal` says why it was refused.

    `id` grows with time; `who` is user@host/pid, or the key that a caller had.
    """

    id: str
    at_ms: int
    who: str
    what: str
    target: str
    reason: str
    detail: str
    door: str
    outcome: Outcome = Outcome.UNKNOWN
    refusal: str = ""


def check_reason(reason: object) -> str:
    """A reason that says something, without blanks around it; raises `InvalidInput` otherwise."""
    text = reason.strip() if isinstance(reason, str) else ""
    if len(text) > MAX_REASON:
        raise InvalidInput(
            f"The reason has {len(text):,} characters; at most {MAX_REASON} are kept.", hint="Shorten it."
        )
    if not text:
        raise InvalidInput(
            "What is done by hand needs a reason.", hint=f"Say why, in at most {MAX_REASON} characters: --reason TEXT."
        )
    return text
