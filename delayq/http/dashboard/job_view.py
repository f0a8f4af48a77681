"""A job as its page shows it: what was asked of it, how its attempts went, what may be done with it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from delayq.core.failure import Failure
from delayq.core.states import State
from delayq.core.views import JobInfo
from delayq.http.dashboard.payload import Redaction, Shown, without
from delayq.http.dashboard.tracebacks import Brief, brief
from delayq.http.dashboard.wording import exact, plural


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that failed, as it is shown; `number` None = not known."""

    number: int | None
    at_ms: int | None
    type: str
    message: str
    traceback: str

    @property
    def brief(self) -> Brief:
        """The traceback without the frames of delayq."""
        return brief(self.traceback)


ACTS: Final[dict[State, tuple[str, ...]]] = {
    State.SCHEDULED: ("run-now", "reschedule", "cancel"),
    State.READY: ("reschedule", "cancel"),
    State.RESERVED: ("stop",),
    State.FAILED: ("retry", "forget"),
    State.COMPLETED: ("forget",),
}
"""What may be done with a job, by its state."""


@dataclass(frozen=True, slots=True)
class JobView:
    """All of it; texts are free of what is covered."""

    info: JobInfo
    facts: tuple[tuple[str, str], ...]
    data: Shown
    result: Shown | None
    partial: Shown | None
    attempts: tuple[Attempt, ...]
    acts: tuple[str, ...]
    editable: bool


def view(info: JobInfo, redaction: Redaction) -> JobView:
    """A job as it is shown."""
    data, covered = redaction.payload(info)
    progress = info.progress
    return JobView(
        info,
        tuple(_facts(info)),
        data,
        _json(info.result, redaction, hidden=info.encrypted),
        _json(progress.partial if progress else None, redaction, hidden=info.encrypted),
        tuple(_attempts(info.ended.before if info.ended else info.failure, covered)),
        tuple(act for act in ACTS.get(info.state, ()) if not (info.is_lost and act == "retry")),
        info.envelope is not None and not (info.is_lost or info.encrypted or data.cut),
    )


def _json(value: Any, redaction: Redaction, *, hidden: bool) -> Shown | None:
    if value is None:
        return None
    if hidden:
        return Shown("(encrypted)", 0, 0)
    return redaction.json(msgspec.json.encode(value))[0]


def _attempts(failure: Failure | None, covered: Sequence[str]) -> Iterator[Attempt]:
    """The last one first."""
    if failure is None:
        return
    for one in (failure, *reversed(failure.history)):
        message, trace = without(one.message, covered), without(one.traceback, covered)
        yield Attempt(one.attempt, one.at_ms, one.type, message, trace)


def _facts(info: JobInfo) -> Iterator[tuple[str, str]]:  # noqa: C901  one branch for each fact
    """What was asked of the job, as far as it says anything itself."""
    envelope = info.envelope
    if envelope is None:
        return
    tries = "" if envelope.tries is None else f" of {envelope.tries}" if envelope.tries else ", without limit"
    yield "Attempts made", f"{info.attempts}{tries}"
    if info.recoveries:
        yield "Its worker vanished", plural(info.recoveries, "time")
    if envelope.backoff is not None:
        yield "Backoff", _backoff(envelope.backoff)
    for name, length_ms in (("Timeout", envelope.timeout_ms), ("Kept when done", envelope.retention_ms)):
        if length_ms is not None:
            yield name, exact(length_ms)
    if envelope.max_exceptions is not None:
        yield "Exceptions", f"{envelope.exceptions} of {envelope.max_exceptions}"
    if envelope.unique is not None:
        yield "Unique key", envelope.unique
    if envelope.tags:
        yield "Tags", ", ".join(envelope.tags)
    for name, value in sorted((envelope.headers or {}).items()):
        yield f"Header {name}", value
    for name, raw in (("Chain", envelope.chain), ("Batch", envelope.batch), ("Encrypted", envelope.encrypted)):
        if bytes(raw):
            yield name, bytes(raw)[:500].decode("utf-8", "replace")
    if info.entry:
        yield "Entry", info.entry


def _backoff(backoff: int | list[int] | dict[str, Any]) -> str:
    if isinstance(backoff, int):
        return exact(backoff)
    if isinstance(backoff, list):
        return ", ".join(map(exact, backoff))
    return ", ".join(f"{name} {value}" for name, value in backoff.items())
