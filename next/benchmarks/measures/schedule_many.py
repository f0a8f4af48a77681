"""One producer that schedules batches of 250 jobs, due in an hour."""

import time

from benchmarks.figures import Figure, Found, Measure
from benchmarks.jobs import BATCH, batch, plain_client, server_cpu
from delayq import DelayQ

BATCHES = 160


def run(url: str) -> Found:
    """Make the specs and schedule them: both are the producer's work."""
    with DelayQ(url) as client, plain_client(url) as server:
        for _ in range(3):
            client.schedule_many(batch(delay="1h"))
        before = server_cpu(server)
        started, cpu = time.perf_counter(), time.process_time()
        for _ in range(BATCHES):
            client.schedule_many(batch(delay="1h"))
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        used = server_cpu(server) - before
    jobs = BATCHES * BATCH
    return {"jobs": jobs / seconds, "producer CPU": 1e6 * cpu / jobs, "server CPU": 1e6 * used / jobs}


MEASURE = Measure(
    "schedule_many",
    run,
    (
        Figure(name="jobs", unit="jobs/s", least_ratio=0.9),
        Figure(name="producer CPU", unit="µs a job"),
        Figure(name="server CPU", unit="µs a job"),
    ),
)
