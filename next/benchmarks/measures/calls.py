"""Calls of Python and C functions a job. They are exact, so they tell about the code and not about the machine."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from benchmarks.figures import Figure, Found, Measure
from benchmarks.jobs import BATCH, PAYLOAD, batch, preload
from benchmarks.worker import notes, running_worker
from delayq import DelayQ

PRELOADED = 5_000
REPEATS = 20


def run(url: str) -> Found:
    """Count in a producer, then in the child of a worker."""
    with DelayQ(url) as client:
        specs = batch(delay="1h")
        single = _calls_of(lambda: client.schedule("noop", PAYLOAD, delay="1h"))
        many = _calls_of(lambda: client.schedule_many(specs))
    preload(url, PRELOADED, "counted")
    with running_worker(url):
        (processed,) = notes(1)
    return {"schedule": single, "schedule_many": many / BATCH, "process": processed}


def _calls_of(work: Callable[[], object]) -> float:
    """Count the calls that some work makes, on average, after it was done once."""
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    work()
    sys.setprofile(profile)
    for _ in range(REPEATS):
        work()
    sys.setprofile(None)
    return (count - 1) / REPEATS


MEASURE = Measure(
    "calls",
    run,
    (
        Figure(name="schedule", unit="calls a job"),
        Figure(name="schedule_many", unit="calls a job"),
        Figure(name="process", unit="calls a job"),
    ),
    pairs=3,
)
