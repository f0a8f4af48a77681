"""Why has this job not run? What is known of it, of its queue and of the workers in; sentences out. Pure.

`diagnosis` judges servers and queues; this picks what concerns one job, and adds what only the job itself tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from delayq.core.diagnosis import Finding, Level
from delayq.core.durations import format_duration
from delayq.core.states import State
from delayq.core.views import JobInfo, QueueStats

_EVERYWHERE: Final = frozenset({"all-paused", "maintenance", "clock", "old-server", "bad-server"})
_MOVER_ONLY: Final = frozenset({"no-mover"})
_ENDED: Final = frozenset({State.FAILED, State.COMPLETED})


class Weight(StrEnum):
    """How much a reason says: all is as it should be, it will pass, or somebody has to do something."""

    FINE = "fine"
    WAIT = "wait"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Reason:
    """One sentence, and what to do about it ('' = nothing). `code` is a short name that stays."""

    code: str
    what: str
    next: str = ""
    weight: Weight = Weight.WAIT


def explain(info: JobInfo, stats: QueueStats, findings: Iterable[Finding], *, high_water: int) -> list[Reason]:
    """Why the job is where it is, the heaviest reason first; never empty."""
    reasons = [*_own(info, stats, high_water), *_around(info, findings)]
    weights = [Weight.PROBLEM, Weight.WAIT, Weight.FINE]
    return sorted(reasons, key=lambda reason: weights.index(reason.weight))


def _own(info: JobInfo, stats: QueueStats, high_water: int) -> Iterator[Reason]:
    match info.state:
        case State.SCHEDULED:
            yield from _scheduled(info, stats, high_water)
        case State.READY:
            what = f"It is due and waits for a worker; jobs ready in this queue: {stats.ready:,}."
            yield Reason("ready", what)
        case State.RESERVED:
            yield from _reserved(info, stats)
        case State.FAILED:
            yield Reason("failed", "It ran and was given up.", "Retry it when its cause is mended.", Weight.PROBLEM)
        case State.COMPLETED:
            yield Reason("completed", "It ran, and is kept until its retention ends.", weight=Weight.FINE)
        case _:
            yield Reason("absent", "It is in no place that delayq knows.")
    if info.envelope is None:
        yield Reason("unreadable", "Its envelope cannot be read.", "Look at its bytes below.", Weight.PROBLEM)


def _scheduled(info: JobInfo, stats: QueueStats, high_water: int) -> Iterator[Reason]:
    left_ms = (info.due_ms or 0) - stats.now_ms
    attempt = info.envelope.attempts if info.envelope else 0
    if left_ms > 0:
        why = f"Attempt {attempt} did not end well; the next is due" if attempt else "It is not due yet:"
        yield Reason("not-due", f"{why} in {format_duration(left_ms)}.", weight=Weight.FINE)
        return
    yield Reason("due", f"It is due since {format_duration(-left_ms)}; the mover takes it next.")
    if stats.load >= high_water:
        yield Reason(
            "high-water",
            f"The stream holds {stats.load:,} jobs, and the mover waits from {high_water:,} on.",
            "Start more workers; or raise DELAYQ_HIGH_WATER.",
            Weight.PROBLEM,
        )


def _reserved(info: JobInfo, stats: QueueStats) -> Iterator[Reason]:
    if info.cancel_asked_ms is not None:
        yield Reason("stopping", "It runs, and was asked to stop.")
    if not info.consumer:
        yield Reason("acknowledged", "A plain consumer has acknowledged it; the janitor closes it within a minute.")
        return
    silent_ms = info.idle_ms or 0
    if stats.lease_ms and silent_ms > stats.lease_ms:
        yield Reason(
            "silent",
            f"{info.consumer} holds it and has been silent for {format_duration(silent_ms)}; "
            f"a lease is {format_duration(stats.lease_ms)}.",
            "A janitor takes it back: run a worker, or `delayq move`.",
            Weight.PROBLEM,
        )
    else:
        yield Reason("running", f"{info.consumer} holds it.", weight=Weight.FINE)


def _around(info: JobInfo, findings: Iterable[Finding]) -> Iterator[Reason]:
    """Findings about its queue and about everything, as far as they keep this job from running."""
    if info.state in _ENDED or info.state is State.ABSENT:
        return
    here = f"queue {info.queue}"
    for found in findings:
        if found.level is not Level.PROBLEM or not (found.where == here or found.code in _EVERYWHERE):
            continue
        if found.code == "unregistered" and repr(info.name) not in found.what:
            continue
        if info.state is State.RESERVED or (found.code in _MOVER_ONLY and info.state is not State.SCHEDULED):
            continue
        yield Reason(found.code, found.what, found.next, Weight.PROBLEM)
