"""A mover alone: jobs that are due lie in the sorted set, and are made ready."""

import time
from typing import Any

from benchmarks.figures import Figure, Found, Measure
from benchmarks.jobs import QUEUE, plain_client, preload, server_cpu
from benchmarks.worker import running_mover, wait_until
from delayq import DelayQ

PRELOADED = 90_000
"""Fewer than a stream may hold before the mover waits."""
HIGH = 80_000
LOW = 10_000


def run(url: str) -> Found:
    """Store jobs in a paused queue, so that none is made ready at once, and measure between two watermarks."""
    with DelayQ(url) as client:
        client.pause(QUEUE)
        preload(url, PRELOADED)
        client.resume(QUEUE)
    with plain_client(url) as client, running_mover(url):
        wait_until(lambda: _waiting(client) < HIGH, pause=0.002)
        begin, left, cpu = time.perf_counter(), _waiting(client), server_cpu(client)
        wait_until(lambda: _waiting(client) < LOW, pause=0.002)
        jobs = left - _waiting(client)
        seconds = time.perf_counter() - begin
        used = server_cpu(client) - cpu
    return {"jobs": jobs / seconds, "server CPU": 1e6 * used / jobs}


def _waiting(client: Any) -> int:
    return int(client.zcard(f"delayq:{{{QUEUE}}}:scheduled"))


MEASURE = Measure(
    "promote",
    run,
    (Figure(name="jobs", unit="jobs/s", least_ratio=0.9), Figure(name="server CPU", unit="µs a job")),
)
