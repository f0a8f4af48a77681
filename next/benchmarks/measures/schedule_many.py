"""One producer that schedules batches of 250 jobs, due in an hour."""

import time

from benchmarks.figures import Figure, Found, Measure
from benchmarks.jobs import BATCH, batch, plain_client
from delayq import DelayQ

BATCHES = 160


def run(url: str) -> Found:
    """Make the specs and schedule them: both are the producer's work."""
    with DelayQ(url) as client:
        client.schedule_many(batch(delay="1h"))
        started, cpu = time.perf_counter(), time.process_time()
        for _ in range(BATCHES):
            client.schedule_many(batch(delay="1h"))
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    with plain_client(url) as client:
        script = client.info("commandstats")["cmdstat_evalsha"]
    jobs = BATCHES * BATCH
    return {"jobs": jobs / seconds, "producer": 1e6 * cpu / jobs, "server": script["usec"] / (jobs + BATCH)}


MEASURE = Measure(
    "schedule_many",
    run,
    (
        Figure(name="jobs", unit="jobs/s", least_ratio=0.9),
        Figure(name="producer", unit="µs a job"),
        Figure(name="server", unit="µs a job"),
    ),
)
