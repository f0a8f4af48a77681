"""Why has this job not run? What is known of it, of its queue and of the workers in; sentences out. Pure.

`diagnosis` judges servers and queues; this picks what concerns one job, and adds what only the job itself tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from delayq.core.diagnosis import TAKE_BACK, Finding, Level, silence
from delayq.core.durations import span
from delayq.core.limit_views import HeldUp, Obstacle
from delayq.core.states import State
from delayq.core.unique import START
from delayq.core.views import JobInfo, QueueStats, WorkerInfo

_EVERYWHERE: Final = frozenset({"all-paused", "maintenance", "clock", "old-server", "bad-server", "writes-refused"})
_MOVER_ONLY: Final = frozenset({"no-mover"})
_NEXT_STEP: Final = frozenset({"due", "ready"})
"""What would happen by itself next."""
_ENDED: Final = frozenset({State.FAILED, State.COMPLETED})


class Weight(StrEnum):
    """How much a reason says: all is as it should be; it will pass; it would, but for a problem named beside it; or
    somebody has to do something."""

    FINE = "fine"
    WAIT = "wait"
    HELD = "held"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Reason:
    """One sentence, and what comes next or is to be done ('' = nothing). `code` is a short name that stays."""

    code: str
    what: str
    next: str = ""
    weight: Weight = Weight.WAIT


@dataclass(frozen=True, slots=True)
class Around:
    """What is known besides: limits it waits for, workers (of any queue), and whether its batch was cancelled."""

    held_up: tuple[HeldUp, ...] = ()
    workers: tuple[WorkerInfo, ...] = ()
    called_off: bool = False


NOTHING: Final = Around()


def explain(
    info: JobInfo, stats: QueueStats, findings: Iterable[Finding], *, high_water: int, around: Around = NOTHING
) -> list[Reason]:
    """Why the job is where it is, the heaviest reason first; never empty."""
    reasons = [*_own(info, stats, high_water, around), *_around(info, findings)]
    if info.state in (State.SCHEDULED, State.READY):
        reasons += [*_limits(info, stats.now_ms, around.held_up), *_workers(info, around)]
    if any(reason.weight is Weight.PROBLEM for reason in reasons):
        reasons = [replace(one, next="", weight=Weight.HELD) if one.code in _NEXT_STEP else one for one in reasons]
    weights = [Weight.PROBLEM, Weight.WAIT, Weight.HELD, Weight.FINE]
    return sorted(reasons, key=lambda reason: weights.index(reason.weight))


def _own(info: JobInfo, stats: QueueStats, high_water: int, around: Around) -> Iterator[Reason]:
    match info.state:
        case State.SCHEDULED:
            yield from _scheduled(info, stats, high_water)
        case State.READY:
            what = f"It is due and waits for a worker; jobs ready in this queue: {stats.ready:,}."
            yield Reason("ready", what)
        case State.RESERVED:
            yield from _reserved(info, stats, around)
        case State.FAILED if info.is_lost:
            what = "Its payload was removed from Redis before it ran."
            next_step = "It cannot be retried: forget it, and schedule the job anew."
            yield Reason("payload-lost", what, next_step, Weight.PROBLEM)
        case State.FAILED:
            yield Reason(
                "failed", "It failed, and no attempt is left.", "Retry it when the cause is fixed.", Weight.PROBLEM
            )
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
        if info.envelope is not None and (info.envelope.unique or "").endswith(START):
            what = "Its unique key is held until it starts. If it is debounced, each dispatch like it puts it off."
            yield Reason("keyed", what, weight=Weight.FINE)
        why = f"Attempt {attempt} did not end well; the next is due" if attempt else "It is not due yet:"
        yield Reason("not-due", f"{why} in {span(left_ms)}.", weight=Weight.FINE)
        return
    yield Reason("due", f"It is due since {span(-left_ms)}.", "The mover takes it next.")
    if stats.load >= high_water:
        yield Reason(
            "high-water",
            f"The stream holds {stats.load:,} jobs, and the mover waits from {high_water:,} on.",
            "Start more workers; or raise DELAYQ_HIGH_WATER.",
            Weight.PROBLEM,
        )


def _reserved(info: JobInfo, stats: QueueStats, around: Around) -> Iterator[Reason]:
    if info.cancel_asked_ms is not None:
        yield Reason("stopping", "It runs, and was asked to stop.")
    if not info.consumer:
        yield Reason("acknowledged", "A plain consumer has acknowledged it; the janitor closes it within a minute.")
        return
    silent_ms = info.idle_ms or 0
    if stats.lease_ms and silent_ms > stats.lease_ms:
        known = None if around is NOTHING else {worker.name for worker in around.workers}
        what = f"It is held. {silence(info.consumer, silent_ms, stats.lease_ms, known)}"
        way_out = f"{TAKE_BACK} `delayq work --queue {info.queue}`, or `delayq move`."
        yield Reason("silent", what, way_out, Weight.PROBLEM)
    else:
        yield Reason("running", f"{info.consumer} holds it.", weight=Weight.FINE)


def _around(info: JobInfo, findings: Iterable[Finding]) -> Iterator[Reason]:
    """Findings about its queue and about everything, as far as they keep this job from running."""
    if info.state in _ENDED or info.state is State.ABSENT:
        return
    here = f"queue {info.queue}"
    for found in findings:
        keeps = found.level is Level.PROBLEM or found.code == "paused"
        if not keeps or not (found.where == here or found.code in _EVERYWHERE):
            continue
        if found.code == "unregistered" and repr(info.name) not in found.what:
            continue
        if found.code == "silent" or (info.state is State.RESERVED and found.code != "writes-refused"):
            continue
        if found.code in _MOVER_ONLY and info.state is not State.SCHEDULED:
            continue
        yield Reason(found.code, found.what, found.next, Weight.PROBLEM)


def _limits(info: JobInfo, now_ms: int, held_up: Iterable[HeldUp]) -> Iterator[Reason]:
    """Limits that turned it away, and when they let it in."""
    for one in held_up:
        named = f"{one.name} ({one.key})" if one.key else one.name
        owners = ", ".join(owner.replace(" ", "/", 1) for owner in one.owners)
        look = f"delayq limit show {one.name}"
        match one.obstacle:
            case Obstacle.PLACE:
                since = span(max(0, now_ms - one.at_ms))
                taken = f"{one.held} of {one.number} taken" + (f", by {owners}" if owners else "")
                what = f"It waits since {since} for a place of the limit {named}: {taken}."
                yield Reason("no-place", what, f"It runs as soon as a place is given back. {look}")
            case Obstacle.TURN:
                left = f"in {span(one.at_ms - now_ms)}" if one.at_ms > now_ms else "now"
                yield Reason("no-turn", f"The rate limit {named} turned it away; its turn is {left}.", look)
            case Obstacle.CIRCUIT if one.at_ms > now_ms:
                left = span(one.at_ms - now_ms)
                what = f"The circuit {named} is open after {_several(one.number, 'failure')}, for another {left}."
                yield Reason("circuit-open", what, f"Mend what these jobs call; or free it on the page Limits. {look}")
            case Obstacle.CIRCUIT:
                by = f": {owners} tries whether it works again" if owners else ": the next job tries"
                yield Reason("circuit-tried", f"The circuit {named} is half open{by}.", look)


def _workers(info: JobInfo, around: Around) -> Iterator[Reason]:
    """Workers that serve its queue and fetch nothing; and what they do, when it is its turn."""
    if around.called_off:
        yield Reason("called-off", "Its batch was cancelled: when its time comes it is skipped.", weight=Weight.FINE)
    serving = [one for one in around.workers if info.queue in one.queues]
    states = sorted({str(one.about.get("state", "working")) for one in serving})
    if serving and "working" not in states:
        what = f"No worker of this queue fetches anything; {len(serving)} serve it: {', '.join(states)}."
        # Maintenance and a pause of everything are told of by themselves, and no other worker would fetch either.
        advice = "Start another one." if states == ["leaving"] else ""
        advice = "Send them SIGCONT, or start another one." if "paused" in states else advice
        quiet = [one.name for one in serving if one.about.get("state") == "quiet"]
        advice = f"delayq workers resume {quiet[0]}" if quiet else advice
        yield Reason("quiet", what, advice, Weight.PROBLEM)
    elif serving and info.state is State.READY:
        running = sum(runs for one in serving if isinstance(runs := one.about.get("runs"), int))
        what = f"Workers that serve this queue: {len(serving)}; they run {_several(running, 'job')} now."
        yield Reason("served", what)


def _several(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
