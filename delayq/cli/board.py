"""How `top` looks: a pulse as tables of words. Pure; render prints them, once or again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from delayq.cli.pulse import Pulse, Rates, Running
from delayq.cli.words import distance, span
from delayq.core.when import format_instant

_MESSAGE: Final = 80
_COUNTS: Final = ("scheduled", "ready", "reserved", "failed", "completed")


@dataclass(frozen=True, slots=True)
class Section:
    """One table under its title; the columns named in `numbers` stand to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Board:
    """Lines that say what matters most, and tables below them."""

    head: Sequence[str]
    warnings: Sequence[str]
    sections: Sequence[Section]


def board(pulse: Pulse, rates: Rates, notice: str = "") -> Board:
    """Everything; `notice` goes before all warnings."""
    head = [f"delayq top   {format_instant(pulse.at_ms)}"]
    sections = [_queues(pulse, rates), _workers(pulse), _running(pulse), _failures(pulse)]
    return Board(head, [line for line in (notice, *_held(pulse)) if line], sections)


def _held(pulse: Pulse) -> list[str]:
    """What keeps workers from fetching."""
    found = ["Everything is paused."] if pulse.control.paused else []
    if pulse.control.maintenance:
        found.append(f"Maintenance. {pulse.control.reason}".rstrip())
    return found


def _queues(pulse: Pulse, rates: Rates) -> Section:
    rows = []
    for one in pulse.queues:
        counts = [f"{number:,}" for number in (one.scheduled, one.ready, one.reserved, one.failed, one.completed)]
        speed = rates.get(one.queue, {})
        paces = [f"{speed.get(word, 0.0):,.1f}" for word in ("scheduled", "done", "failed")]
        late = span(one.overdue_oldest_ms) if one.overdue_oldest_ms else ""
        rows.append((one.queue, *counts, late, *paces, "paused" if one.paused else ""))
    numbers = (*_COUNTS, "late", "in/s", "done/s", "failed/s")
    return Section("queues", ("queue", *numbers, "paused"), rows, numbers)


def _workers(pulse: Pulse) -> Section:
    rows = []
    for one in pulse.workers:
        late_ms = one.about.get("late_ms")
        words = [str(one.about.get(name, "")) for name in ("state", "held", "done")]
        late = span(late_ms) if isinstance(late_ms, int) else ""
        rows.append((one.name, ",".join(one.queues), *words, late))
    return Section("workers", ("worker", "queues", "state", "held", "done", "late"), rows, ("held", "done", "late"))


def _running(pulse: Pulse) -> Section:
    rows = [(job.queue, job.id, job.name, span(max(0, job.for_ms)), progress(job)) for job in pulse.running]
    return Section("running", ("queue", "id", "name", "for", "progress"), rows, ("for",))


def progress(job: Running) -> str:
    """How far it is: '3 of 10 (30%) rows'."""
    told = job.progress
    if told is None:
        return ""
    of = "" if told.total is None else f" of {told.total:,}"
    share = "" if told.fraction is None else f" ({told.fraction:.0%})"
    return f"{'' if told.done is None else f'{told.done:,}{of}{share}'} {told.note}".strip()


def _failures(pulse: Pulse) -> Section:
    rows = []
    for job in pulse.failures:
        why = f"{job.failure.type}: {job.failure.message}"[:_MESSAGE] if job.failure else ""
        when = "" if job.failed_ms is None else distance(job.failed_ms, pulse.at_ms)
        rows.append((job.queue, job.id, job.name, when, why))
    return Section("recent failures", ("queue", "id", "name", "when", "why"), rows)
