"""What is measured of each peer. A measure returns one number and its unit; what is better stands in `MEASURES`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.peers.stage import Broken, Stage

LONE: Final = 60
GAP_S: Final = 0.05
LEAD_S: Final = 4.0
"""How long before they are due the jobs of a burst are sent, at least."""
BURST: Final = 20_000
LONGEST_S: Final = 45.0


@dataclass(frozen=True, slots=True)
class Measure:
    """One column of the table."""

    name: str
    title: str
    unit: str
    more_is_better: bool
    run: Callable[[Stage], float]
    needs_delays: bool = False


def enqueue(stage: Stage) -> float:
    """Jobs a second that one producer sends by the fastest call there is."""
    return stage.peer.jobs / _sent(stage, stage.peer.jobs, 0.0)


def process(stage: Stage) -> float:
    """Jobs a second that one worker process starts, from the first of a full queue to the last."""
    return _processed(stage, 1)


def process_two(stage: Stage) -> float:
    """The same for two worker processes."""
    return _processed(stage, 2)


def burst(stage: Stage) -> float:
    """Jobs a second of those that are due at one instant, from that instant to the start of the last."""
    jobs = min(BURST, stage.peer.jobs)
    with stage.working():
        _warm(stage)
        at = time.time() + LEAD_S + jobs / 4_000
        _sent(stage, jobs, at)
        if (late_s := time.time() - at) > 0:
            raise Broken(f"sending {jobs:,} delayed jobs took {late_s:.1f} s too long")
        found = stage.wait_for(jobs + 1, at - time.time() + LONGEST_S)
    return jobs / (max(start for start, due in found if due == at) - at)


def lone(stage: Stage) -> float:
    """Milliseconds from before the call that sends one job to its handler's start, on an idle worker; the median."""
    with stage.working():
        _warm(stage)
        stage.ask("lone", LONE, GAP_S)
        found = stage.wait_for(LONE + 1, LONGEST_S)
    return statistics.median((start - sent) * 1_000 for start, sent in found[1:])


MEASURES: Final = (
    Measure("enqueue", "bulk enqueue", "jobs/s", True, enqueue),
    Measure("process", "one process", "jobs/s", True, process),
    Measure("process_two", "two processes", "jobs/s", True, process_two),
    Measure("burst", "due at one instant", "jobs/s", True, burst, needs_delays=True),
    Measure("lone", "lone job to its start", "ms", False, lone),
)


def _sent(stage: Stage, jobs: int, at: float) -> float:
    """Seconds it took to send them."""
    said = stage.ask("enqueue", jobs, repr(at))
    try:
        return float(said.split()[-1])
    except (IndexError, ValueError):
        raise Broken(f"enqueue said {said!r}") from None


def _processed(stage: Stage, processes: int) -> float:
    _sent(stage, stage.peer.jobs, 0.0)
    with stage.working(processes):
        starts = [start for start, _ in stage.wait_for(stage.peer.jobs, LONGEST_S)]
    return (stage.peer.jobs - 1) / (max(starts) - min(starts))


def _warm(stage: Stage) -> None:
    """The worker is there: it has started a job."""
    stage.ask("lone", 1, 0.0)
    stage.wait_for(1, LONGEST_S)
