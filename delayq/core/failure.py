"""The record of a failure: the last error in full, and the ones before it.

Kept as JSON in the `errors` hash while a job is being tried again and after it failed. The first
error is never dropped: when a job dies of "too many attempts" or a vanished worker, the first one
is what its owner wants to see.
"""

from __future__ import annotations

import traceback as tracebacks
from typing import Any, Final

import msgspec

MAX_MESSAGE: Final = 4_000
MAX_TRACEBACK: Final = 16_000
MAX_HISTORY: Final = 10
MAX_IN_A_LINE: Final = 1_000
MAX_TYPE: Final = 200
MAX_TYPE_IN_A_LINE: Final = 100


class Ran(msgspec.Struct, frozen=True, omit_defaults=True):
    """When an attempt was due, came into the stream and began, epoch ms; None = it never did, or nobody knows.

    `recoveries`: how often a worker that held the job had vanished before.
    """

    due_ms: int | None = None
    promoted_ms: int | None = None
    started_ms: int | None = None
    recoveries: int = 0


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One failure. `history` holds the earlier ones, oldest first, without their own tracebacks but the first's.

    `ran`: the way of that attempt to its start; None where the backend keeps none.
    """

    type: str
    message: str
    traceback: str = ""
    at_ms: int | None = None
    attempt: int | None = None
    history: list[Failure] = []
    ran: Ran | None = None

    @property
    def first(self) -> Failure:
        """The oldest one, itself when there was none before: what went wrong to begin with. Never dropped."""
        return self.history[0] if self.history else self


class Recorded(Exception):
    """An error of which only the record is left: it was raised in a process that is gone."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


_decode = msgspec.json.Decoder(Failure).decode
encode = msgspec.json.Encoder().encode


def describe(
    error: BaseException, *, at_ms: int | None = None, attempt: int | None = None, ran: Ran | None = None
) -> Failure:
    """What a raised exception leaves behind, cut to a size that does no harm."""
    if isinstance(error, Recorded):
        return error.failure
    return Failure(
        type=_cut(type(error).__name__, MAX_TYPE),
        message=_cut(message_of(error), MAX_MESSAGE),
        traceback=_cut(_traceback(error), MAX_TRACEBACK, tail=True),
        at_ms=at_ms,
        attempt=attempt,
        ran=ran,
    )


def message_of(error: BaseException) -> str:
    """An error's own words, whole; when it cannot say them, that."""
    try:
        return str(error)
    except BaseException as broken:  # noqa: BLE001  (the __str__ of a stranger may raise anything; it is named below)
        return f"(its message could not be made: {type(broken).__name__})"


def in_a_line(error: BaseException) -> str:
    """Type and message, as much of them as a line of a log should hold, and how much was left out."""
    kind, message = type(error).__name__, message_of(error)
    left_out = len(message) - MAX_IN_A_LINE
    shown = message if left_out <= 0 else f"{message[:MAX_IN_A_LINE]} … ({left_out:,} characters left out)"
    return f"{kind[:MAX_TYPE_IN_A_LINE]}: {shown}" if shown else kind[:MAX_TYPE_IN_A_LINE]


def _traceback(error: BaseException) -> str:
    """Where it was raised, with its causes; '' for an error that was never raised."""
    if error.__traceback__ is None:
        return ""
    try:
        return "".join(tracebacks.format_exception(error, limit=-50))
    except BaseException as broken:  # noqa: BLE001  (a stranger's error may break its own printing, not the job's end)
        return f"(its traceback could not be made: {type(broken).__name__})"


def after(previous: Failure | None, failure: Failure) -> Failure:
    """`failure` with `previous` and what came before it as history; the first error always stays."""
    if previous is None:
        return failure
    if failure.attempt is None and previous.type == failure.type:  # it costs no attempt and is found again and again
        return msgspec.structs.replace(failure, history=previous.history)
    past = [*flatten(previous.history), msgspec.structs.replace(previous, history=[])]
    kept = past if len(past) <= MAX_HISTORY else [past[0], *past[1 - MAX_HISTORY :]]
    short = [item if n == 0 else msgspec.structs.replace(item, traceback="") for n, item in enumerate(kept)]
    return msgspec.structs.replace(failure, history=short)


def flatten(history: list[Failure]) -> list[Failure]:
    """The history as one list: scripts write it nested, because they never decode JSON."""
    flat: list[Failure] = []
    for item in history:
        flat += flatten(item.history)
        flat.append(msgspec.structs.replace(item, history=[]))
    return flat


def decode(raw: bytes) -> Failure | None:
    """Read a record; None for ''. What is no record (somebody else wrote it) is shown as it is."""
    if not raw:
        return None
    try:
        failure = _decode(raw)
        return msgspec.structs.replace(failure, history=flatten(failure.history))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Failure(type="unreadable", message=_cut(raw.decode("utf-8", "replace"), MAX_MESSAGE))


def as_dict(failure: Failure) -> dict[str, Any]:
    """For `--json` and the like."""
    built: dict[str, Any] = msgspec.to_builtins(failure)
    return built


def _cut(text: str, limit: int, *, tail: bool = False) -> str:
    """Text that UTF-8 can carry, cut to `limit` characters (the end is kept when `tail`)."""
    clean = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(clean) <= limit:
        return clean
    return f"… {clean[-limit:]}" if tail else f"{clean[:limit]} … ({len(clean):,} characters)"
