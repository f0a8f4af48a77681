"""The life of a job as steps with the time between them, from what its envelope, its entry and its failures tell.

created -> [an attempt failed -> ...] -> due -> promoted -> started -> settled

How an attempt that has ended came to its start stands in its record (`core/ran`), written when it was settled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from delayq.core.failure import Failure, Ran
from delayq.core.options import Options
from delayq.core.ran import entered_ms
from delayq.core.states import State
from delayq.core.views import JobInfo, WorkerInfo
from delayq.http.dashboard.wording import exact, span

KEEP_FAILED_MS: Final = Options().keep_failed_ms
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


def steps(
    info: JobInfo, now_ms: int, workers: tuple[WorkerInfo, ...] = (), *, keep_failed_ms: int = KEEP_FAILED_MS
) -> list[Step]:
    """All steps in their order; what lies ahead comes last. `keep_failed_ms`: how long a failed job is kept."""
    found: list[Step] = []
    before: Step | None = None
    for step in _steps(info, now_ms, workers, keep_failed_ms):
        if step.at_ms is not None and before is not None and before.at_ms is not None and step.kind != "ahead":
            gap = step.at_ms - before.at_ms
            step = replace(step, after_ms=gap, late=step.name in _PROMPT and gap >= LATE_MS)
        before = step if step.at_ms is not None else before
        found.append(step)
    return found


_PROMPT: Final = ("promoted", "started")


def _steps(info: JobInfo, now_ms: int, workers: tuple[WorkerInfo, ...], keep_failed_ms: int) -> Iterator[Step]:
    if info.created_ms is not None:
        yield Step("created", info.created_ms, "by the producer's clock")
    yield from _attempts(info)
    if info.state is State.SCHEDULED and info.due_ms is not None:
        ahead = info.due_ms > now_ms
        yield Step("due", info.due_ms, "" if ahead else "waits for a mover", "ahead" if ahead else "now")
    elif info.state in (State.READY, State.RESERVED):
        yield from _under_way(info, workers)
    elif info.state is State.FAILED:
        yield from _way(info.failure.ran if info.failure else None, info.failed_ms)
        yield Step("failed", info.failed_ms, f"no attempt is left; kept for {span(keep_failed_ms)}")
    elif info.state is State.COMPLETED:
        yield from _completed(info)


def _attempts(info: JobInfo) -> Iterator[Step]:
    """Attempts that failed and were followed by another."""
    if info.failure is not None:
        past = info.failure.history if info.state is State.FAILED else [*info.failure.history, info.failure]
    else:
        past = info.ended.failures if info.ended is not None else []
    for failure in past:
        number = f"attempt {failure.attempt}" if failure.attempt is not None else "an attempt"
        kind = "unknown" if failure.at_ms is None else "past"
        yield Step(f"{number} failed", failure.at_ms, f"{failure.type}{_length(failure)}", kind)


def _length(failure: Failure) -> str:
    """How long an attempt took that was followed by another."""
    began_ms = failure.ran.started_ms if failure.ran is not None else None
    return "" if began_ms is None or failure.at_ms is None else f" after {exact(max(0, failure.at_ms - began_ms))}"


def _way(ran: Ran | None, ended_ms: int | None) -> Iterator[Step]:
    """How the last attempt came to its start, as far as it was kept. Its worker saw the server's clock from afar."""
    if ran is None:
        return
    if ran.due_ms is not None:
        yield Step("due", ran.due_ms)
    if ran.promoted_ms is not None:
        yield Step("promoted", ran.promoted_ms, "into the stream")
    if ran.started_ms is not None:
        yield Step("started", ran.started_ms if ended_ms is None else min(ran.started_ms, ended_ms))
    else:
        yield Step("started", None, "it never did", "unknown")


def _under_way(info: JobInfo, workers: tuple[WorkerInfo, ...]) -> Iterator[Step]:
    if info.due_ms is not None:
        yield Step("due", info.due_ms)
    again = f"; its worker vanished {info.recoveries} times before" if info.recoveries else ""
    promoted_ms = entered_ms(info.entry)
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
    kept_ms = info.ended.kept_ms if info.ended is not None else kept_ms
    ended_ms = info.forget_ms - kept_ms if info.forget_ms is not None and kept_ms else None
    yield from _way(info.ended.ran if info.ended is not None else None, ended_ms)
    if ended_ms is not None:
        yield Step("completed", ended_ms, "done")
    else:
        yield Step("completed", None, "done; when is not kept", "unknown")
    yield Step("forgotten", info.forget_ms, "its retention ends", "ahead")
