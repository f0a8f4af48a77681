"""From the due time of a job to the start of its handler, while many jobs fall due one after the other."""

import time
from datetime import UTC, datetime

from benchmarks.figures import Figure, Found, Measure, percentile
from benchmarks.jobs import BATCH
from benchmarks.worker import notes, running_worker, warm_up
from delayq import DelayQ, JobSpec

JOBS = 5_000
SECONDS = 10
LEAD_MS = 2_000
"""From the first schedule to the first due time: all jobs are stored by then."""


def run(url: str) -> Found:
    """Schedule all jobs, then let them fall due under a running worker."""
    with DelayQ(url) as client, running_worker(url):
        warm_up(url)
        begin_ms = int(time.time() * 1000) + LEAD_MS
        dues = [(begin_ms + n * SECONDS * 1000 // JOBS) / 1000 for n in range(JOBS)]
        specs = [JobSpec(name="stamp", data={"at": due}, at=datetime.fromtimestamp(due, UTC)) for due in dues]
        for start in range(0, JOBS, BATCH):
            client.schedule_many(specs[start : start + BATCH])
        time.sleep(dues[-1] - time.time())
        late = notes(JOBS)
    return {"p50": 1000 * percentile(late, 0.5), "p99": 1000 * percentile(late, 0.99), "max": 1000 * max(late)}


MEASURE = Measure(
    "lateness",
    run,
    (
        Figure(name="p50", unit="ms", most_ratio=1.2),
        Figure(name="p99", unit="ms", most_ratio=1.5),
        Figure(name="max", unit="ms"),
    ),
)
