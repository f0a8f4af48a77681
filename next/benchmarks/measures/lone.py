"""From the call of `schedule` to the start of the handler, one job at a time, while the worker is idle."""

import time

from benchmarks.figures import Figure, Found, Measure, percentile
from benchmarks.worker import notes, running_worker, warm_up
from delayq import DelayQ

JOBS = 500
PAUSE = 0.015


def run(url: str) -> Found:
    """Schedule jobs with pauses between them: each finds the worker waiting."""
    with DelayQ(url) as client, running_worker(url):
        warm_up(url)
        for _ in range(JOBS):
            client.schedule("stamp", {"at": time.time()})
            time.sleep(PAUSE)
        late = notes(JOBS)
    return {"p50": 1000 * percentile(late, 0.5), "p99": 1000 * percentile(late, 0.99)}


MEASURE = Measure(
    "lone",
    run,
    (Figure(name="p50", unit="ms", most_ratio=1.2), Figure(name="p99", unit="ms", most_ratio=1.5)),
)
