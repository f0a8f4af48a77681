"""The life of a job as steps with the time between them, from what its envelope, its entry and its failures tell.

created -> [an attempt failed -> ...] -> due -> promoted -> started -> settled
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from delayq.core.states import State
from delayq.core.views import JobInfo, WorkerInfo

LATE_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `at_ms` None: it was not kept, and `note` says why. `after_ms`: since the step before that is known.

    `kind` is past, now, ahead or unknown; `late` marks a gap that should have been short.
    """

    name: str
    at_ms: int | None
    note: str = ""
    kind: str = "past"
    after_ms: int | None = None
    late: bool = False


def started_ms(info: JobInfo, workers: tuple[WorkerInfo, ...]) -> int | None:
    """When the attempt began that a worker says it runs; None when none says so."""
    for worker in workers:
        for item in worker.about.get("running") or ():
            if item.get("id") == info.id and item.get("queue") == info.queue and isinstance(item.get("since_ms"), int):
                return int(item["since_ms"])
    return None


def steps(info: JobInfo, now_ms: int, workers: tuple[WorkerInfo, ...] = ()) -> list[Step]:
    """All steps in their order; what lies ahead comes last."""
    found: list[Step] = []
    before: Step | None = None
    for step in _steps(info, now_ms, workers):
        if step.at_ms is not None and before is not None and before.at_ms is not None and step.kind != "ahead":
            gap = step.at_ms - before.at_ms
            step = replace(step, after_ms=gap, late=step.name in _PROMPT and gap >= LATE_MS)
        before = step if step.at_ms is not None else before
        found.append(step)
    return found


_PROMPT: Final = ("promoted", "started")


def _steps(info: JobInfo, now_ms: int, workers: tuple[WorkerInfo, ...]) -> Iterator[Step]:
    envelope = info.envelope
    if envelope is not None:
        yield Step("created", envelope.created_ms, "by the producer's clock")
    yield from _attempts(info)
    if info.state is State.SCHEDULED and info.due_ms is not None:
        ahead = info.due_ms > now_ms
        yield Step("due", info.due_ms, "" if ahead else "waits for a mover", "ahead" if ahead else "now")
    elif info.state in (State.READY, State.RESERVED):
        yield from _under_way(info, workers)
    elif info.state is State.FAILED:
        yield Step("failed", info.failed_ms, "given up; kept until it is retried or forgotten")
    elif info.state is State.COMPLETED:
        yield from _completed(info)


def _attempts(info: JobInfo) -> Iterator[Step]:
    """Attempts that failed and were followed by another."""
    if info.failure is None:
        return
    past = info.failure.history if info.state is State.FAILED else [*info.failure.history, info.failure]
    for failure in past:
        number = f"attempt {failure.attempt}" if failure.attempt is not None else "an attempt"
        kind = "unknown" if failure.at_ms is None else "past"
        yield Step(f"{number} failed", failure.at_ms, failure.type, kind)


def _under_way(info: JobInfo, workers: tuple[WorkerInfo, ...]) -> Iterator[Step]:
    if info.due_ms is not None:
        yield Step("due", info.due_ms)
    entered = info.entry.partition("-")[0]
    again = f"; its worker vanished {info.recoveries} times before" if info.recoveries else ""
    promoted_ms = int(entered) if entered.isdigit() else None
    if info.state is State.READY:
        yield Step("promoted", promoted_ms, f"in the stream as {info.entry}{again}")
        yield Step("started", None, "waits for a worker", "now")
        return
    yield Step("promoted", promoted_ms, f"in the stream as {info.entry}{again}")
    since_ms = started_ms(info, workers)
    by = f"by {info.consumer}" if info.consumer else "by a consumer that has acknowledged it"
    if since_ms is None:
        yield Step("started", None, f"delivered, read {by}; no worker says that it runs", "unknown")
    else:
        yield Step("started", since_ms, f"{by}; it runs", "now")
    if info.cancel_asked_ms is not None:
        yield Step("asked to stop", info.cancel_asked_ms)


def _completed(info: JobInfo) -> Iterator[Step]:
    kept_ms = info.envelope.retention_ms if info.envelope else None
    if info.forget_ms is not None and kept_ms:
        yield Step("completed", info.forget_ms - kept_ms, "done")
    else:
        yield Step("completed", None, "done; when is not kept", "unknown")
    yield Step("forgotten", info.forget_ms, "its retention ends", "ahead")
