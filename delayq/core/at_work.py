"""Which job runs here just now: what log lines say beside their own words, also those of handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Final, NamedTuple


class AtWork(NamedTuple):
    """A running attempt. `trace_id` is the one its producer sent along, '' without one."""

    job_id: str
    job: str
    queue: str
    attempt: int
    worker: str
    trace_id: str


AT_WORK: Final[ContextVar[Callable[[], AtWork] | None]] = ContextVar("delayq_at_work", default=None)
"""Set by a worker that somebody listens to, around each attempt; of a thread, or of one coroutine. Most jobs write no
line, so it is worked out when one does."""

TRACE: Final = "traceparent"
_PARTS: Final = 4
_HEX: Final = frozenset("0123456789abcdef")


def trace_id_of(headers: Mapping[str, str] | None) -> str:
    """The trace id in the header `traceparent` of W3C; '' when there is none, or no good one."""
    parts = headers.get(TRACE, "").split("-") if headers else []
    found = parts[1] if len(parts) >= _PARTS else ""
    return found if len(found) == 32 and _HEX.issuperset(found) and found.strip("0") else ""
