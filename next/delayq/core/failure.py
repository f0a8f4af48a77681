"""The record of a failure: the last error in full, and the ones before it.

It is JSON in the hash `errors`, while the job is tried again and after it failed. Scripts nest the earlier failures
into `history`, because a worker in another language would have to read them first. The first failure is never dropped.
"""

import traceback
from pathlib import Path
from typing import Final

import msgspec

MAX_MESSAGE: Final = 4_000
MAX_TRACEBACK: Final = 16_000
MAX_TYPE: Final = 200
_OWN_FILES: Final = str(Path(__file__).parents[1])


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One failure. `history` holds the earlier ones, oldest first."""

    type: str
    message: str
    traceback: str = ""
    at_ms: int | None = None
    attempt: int | None = None
    history: list["Failure"] = []

    @property
    def first(self) -> "Failure":
        """The oldest failure: what went wrong to begin with."""
        return self.history[0] if self.history else self


_decode: Final = msgspec.json.Decoder(Failure).decode
_encode: Final = msgspec.json.Encoder().encode


def describe(error: BaseException, *, at_ms: int | None = None, attempt: int | None = None) -> Failure:
    """Return what a raised exception leaves behind, cut to a size that does no harm."""
    return Failure(
        type=_cut(type(error).__name__, MAX_TYPE),
        message=_cut(message_of(error), MAX_MESSAGE),
        traceback=_keep_tail(_traceback(error), MAX_TRACEBACK),
        at_ms=at_ms,
        attempt=attempt,
    )


def note(type: str, message: str) -> Failure:
    """Return a failure that no exception caused."""
    return Failure(type, _cut(message, MAX_MESSAGE))


def encode(failure: Failure) -> bytes:
    """Write a record."""
    return _encode(failure)


def encode_open(failure: Failure) -> bytes:
    """Write a record without its closing brace: a script adds the time and the history."""
    return _encode(failure)[:-1]


def decode(raw: bytes) -> Failure | None:
    """Read a record; None for b''. A text that is no record becomes the message: another program wrote it."""
    if not raw:
        return None
    try:
        failure = _decode(raw)
        return msgspec.structs.replace(failure, history=_flatten(failure.history))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Failure(type="unreadable", message=_cut(raw.decode("utf-8", "replace"), MAX_MESSAGE))


def message_of(error: BaseException) -> str:
    """Return the text of an error, also of one whose `__str__` fails."""
    try:
        return str(error)
    except BaseException as broken:
        return f"(its message could not be made: {type(broken).__name__})"


def application_traceback(error: BaseException) -> str:
    """Return a traceback from the first frame of the application on, with a line break in front; '' without one."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OWN_FILES):
        trace = trace.tb_next
    if trace is None:
        return ""
    try:
        return "\n" + "".join(traceback.format_exception(type(error), error, trace, limit=-20)).rstrip()
    except Exception as broken:
        return f"\n(the traceback could not be made: {type(broken).__name__})"


def _traceback(error: BaseException) -> str:
    if error.__traceback__ is None:
        return ""
    try:
        return "".join(traceback.format_exception(error, limit=-50))
    except BaseException as broken:
        return f"(its traceback could not be made: {type(broken).__name__})"


def _flatten(history: list[Failure]) -> list[Failure]:
    flat: list[Failure] = []
    for failure in history:
        flat += _flatten(failure.history)
        flat.append(msgspec.structs.replace(failure, history=[]))
    return flat


def _cut(text: str, limit: int) -> str:
    clean = _clean(text)
    return clean if len(clean) <= limit else f"{clean[:limit]} … ({len(clean):,} characters)"


def _keep_tail(text: str, limit: int) -> str:
    clean = _clean(text)
    return clean if len(clean) <= limit else f"… {clean[-limit:]}"


def _clean(text: str) -> str:
    """Return text that UTF-8 can carry."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
