"""The record of the failures of a job: the last failure, and up to nine earlier ones in `history`.

Long messages and tracebacks are cut. The record is JSON in the Redis hash `errors`. It exists while the job is retried
and after it has failed. Scripts copy earlier failures into `history`, so that a worker need not read them before it
writes a new failure. `history` keeps the nine oldest failures, so the first one is never dropped.
"""

import os
import traceback
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

MAX_MESSAGE: Final = 4_000
MAX_TRACEBACK: Final = 16_000
MAX_TYPE: Final = 200
MAX_FRAMES: Final = 20
"""Maximum number of frames in the log line of a failure."""
_OWN_FILES: Final = str(Path(__file__).parents[1]) + os.sep


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One failure. `history` has up to nine earlier failures, oldest first."""

    type: str
    message: str
    traceback: str = ""
    at_ms: int | None = None
    attempt: int | None = None
    history: list["Failure"] = []

    @property
    def first(self) -> "Failure":
        """The oldest failure."""
        return self.history[0] if self.history else self


_decode: Final = msgspec.json.Decoder(Failure).decode
_encode: Final = msgspec.json.Encoder().encode


def describe(error: BaseException, *, at_ms: int | None = None, attempt: int | None = None) -> Failure:
    """Return the record of an exception. A long message is cut at its end.

    The traceback begins with the first frame outside of delayq, or with the first frame if all frames belong to delayq.
    From a long traceback, only the last 50 frames and the last 16,000 characters are kept.
    """
    return Failure(
        type=_cut(type(error).__name__, MAX_TYPE),
        message=_cut(message_of(error), MAX_MESSAGE),
        traceback=_keep_tail(_traceback(error), MAX_TRACEBACK),
        at_ms=at_ms,
        attempt=attempt,
    )


def note(type: str, message: str) -> Failure:
    """Return a failure that was not caused by an exception."""
    return Failure(type, _cut(message, MAX_MESSAGE))


def encode(failure: Failure) -> bytes:
    """Return the JSON of a record."""
    return _encode(failure)


def encode_open(failure: Failure) -> bytes:
    """Return the JSON of a record without the closing brace, because a script appends the time and the history."""
    return _encode(failure)[:-1]


def decode(raw: bytes) -> Failure | None:
    """Read a record, or return None for b''.

    If `raw` is not a record, return a failure of the type "unreadable". Its message is this text, which is cut.
    """
    if not raw:
        return None
    try:
        failure = _decode(raw)
        return msgspec.structs.replace(failure, history=_flatten(failure.history))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Failure(type="unreadable", message=_cut(raw.decode("utf-8", "replace"), MAX_MESSAGE))


def message_of(error: BaseException) -> str:
    """Return the text of an error. If its `__str__` raises, return a replacement."""
    try:
        return str(error)
    except BaseException as broken:
        return f"(no message: its __str__ raised {type(broken).__name__})"


def application_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback of an error from the first frame outside of delayq on; at most the last 20 frames.

    Return None if all frames belong to delayq.
    """
    later = trace = _outside_of_delayq(error)
    for _ in range(MAX_FRAMES):
        later = later.tb_next if later is not None else None
    while trace is not None and later is not None:
        trace, later = trace.tb_next, later.tb_next
    return trace


def _outside_of_delayq(error: BaseException) -> TracebackType | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OWN_FILES):
        trace = trace.tb_next
    return trace


def _traceback(error: BaseException) -> str:
    if error.__traceback__ is None:
        return ""
    try:
        frames = _outside_of_delayq(error) or error.__traceback__
        return "".join(traceback.format_exception(type(error), error, frames, limit=-50))
    except BaseException as broken:
        return f"(no traceback: formatting it raised {type(broken).__name__})"


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
    """Escape lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
