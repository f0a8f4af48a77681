"""One producer that schedules batches of 250 jobs, due in an hour."""

import time

from benchmarks.figures import Figure, Found, Measure
from benchmarks.jobs import BATCH, batch
from delayq import DelayQ

BATCHES = 160


def run(url: str) -> Found:
    """Make the specs and schedule them: both are the producer's work."""
    with DelayQ(url) as client:
        client.schedule_many(batch(delay="1h"))
        started = time.perf_counter()
        for _ in range(BATCHES):
            client.schedule_many(batch(delay="1h"))
        seconds = time.perf_counter() - started
    return {"jobs": BATCHES * BATCH / seconds}


MEASURE = Measure("schedule_many", run, (Figure(name="jobs", unit="jobs/s", least_ratio=0.9),))
