"""`POST /v1/jobs`, one at a time and in batches, beside a bare Starlette route that does one EVALSHA."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.figures import Report, Row, Samples, Target, compared
from benchmarks.plan import Plan, side_by_side
from benchmarks.web_load import Load, post

NAME = "http"
TARGET = Target("≥", 0.6)
REQUESTS, CALLERS = 4_000, 8
BATCHES, BATCH = 400, 100
JOB = {"name": "order.close", "data": {"order_id": 42, "lines": ["a", "b"]}, "delay": "1h", "queue": "orders"}


def run(plan: Plan) -> Report:
    """Requests and jobs a second of 8 callers, and how long a request takes."""
    with plan.server() as server:
        ours = (sys.executable, "-m", "delayq", "--url", server.url, "--log-level", "error", "serve", "--port", "0")
        bare = (sys.executable, "-m", "benchmarks.bare_web", server.url)
        with started(ours) as api, started(bare) as raw, server.client() as client:
            rows: list[Row] = []
            one = json.dumps(JOB).encode()
            many = json.dumps({"jobs": [JOB] * BATCH}).encode()
            for what, path, body, requests, jobs in (
                ("POST /v1/jobs, 8 callers", "/v1/jobs", one, REQUESTS, 1),
                (f"POST /v1/jobs/batch, {BATCH} each", "/v1/jobs/batch", many, BATCHES, BATCH),
            ):
                rows += pair(plan, what, (api, raw), Work(path, body, plan.size(requests), jobs), client.flushall)
    return Report(rows)


class Work:
    """What is posted where, how often, and how many jobs each request holds."""

    def __init__(self, path: str, body: bytes, requests: int, jobs: int) -> None:
        self.path, self.body, self.requests, self.jobs = path, body, max(requests, CALLERS), jobs

    def done(self, url: str) -> Load:
        """All of it."""
        return post(url, self.path, self.body, self.requests, CALLERS)


def pair(plan: Plan, what: str, urls: tuple[str, str], work: Work, clear: Callable[[], object]) -> list[Row]:
    """Both sides in turns: a row for the rate, and one for the slowest hundredth."""
    slowest: dict[str, list[float]] = {url: [] for url in urls}

    def once(url: str) -> float:
        clear()
        load = work.done(url)
        slowest[url].append(load.percentile(0.99))
        return load.seconds

    jobs = work.requests * work.jobs
    ours, raw = side_by_side(plan, jobs, lambda: once(urls[0]), lambda: once(urls[1]))
    late = [Samples(tuple(slowest[url][1:]), "ms") for url in urls]
    return [compared(what, ours, raw, TARGET), Row(f"{what}: p99", late[0], late[1])]


@contextmanager
def started(command: tuple[str, ...]) -> Iterator[str]:
    """The address that a server prints; the server ends with the block."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate()
