"""How long pages, /metrics and /readyz take with ten thousand queues, few of which hold jobs."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from typing import Any, Final

from benchmarks.figures import Report, Row, Samples, Target
from benchmarks.measures.dashboard import get
from benchmarks.measures.http import started
from benchmarks.plan import Plan
from benchmarks.server import PrivateServer
from benchmarks.work import raw_jobs
from delayq.core import failure as failures
from delayq.core.envelope import rewrite
from delayq.core.failure import Failure
from delayq.http.metrics import CACHED_S
from delayq.redis.keys import Globals, Keys

NAME = "many_queues"
PREFIX: Final = "delayq"
QUEUES: Final = 10_000
BUSY: Final = 20
"""Queues that hold jobs."""
JOBS: Final = 50
"""Jobs that wait in each of them, and as many that have failed."""
PAGES: Final = (
    ("/metrics, a new look", "/metrics", Target("≤", 500)),
    ("jobs that wait", "/jobs", Target("≤", 300)),
    ("jobs that are ready", "/jobs?state=ready", Target("≤", 300)),
    ("failed", "/failed", Target("≤", 300)),
    ("failed, grouped by error", "/failed/groups", Target("≤", 300)),
    ("overview", "/", Target("≤", 300)),
    ("list of queues", "/queues", Target("≤", 300)),
    ("GET /v1/queues", "/v1/queues", None),
    ("GET /v1/jobs", "/v1/jobs", None),
    ("GET /v1/failed", "/v1/failed", None),
    ("/readyz", "/readyz", Target("≤", 50)),
)
COLD: Final = (("overview", "/"), ("/readyz", "/readyz"), ("/metrics", "/metrics"))
"""What a server is asked first after its start."""


def run(plan: Plan) -> Report:
    """Every path in turn; the rounds are so far apart that each look at all queues is a new one."""
    queues = max(2 * BUSY, plan.size(QUEUES))
    took: dict[str, list[float]] = {what: [] for what, _, _ in PAGES}
    first: dict[str, list[float]] = {what: [] for what, _ in COLD}
    with plan.server() as server, server.client() as client:
        fill(client, queues)
        with serving(server) as url:
            for _, path, _ in PAGES:
                get(url, path)
            for _ in range(plan.runs):
                time.sleep(CACHED_S)
                for what, path, _ in PAGES:
                    took[what].append(get(url, path)[0])
        for what, path in COLD:
            for _ in range(plan.runs):
                with serving(server) as url:
                    get(url, "/livez")
                    first[what].append(get(url, path)[0])
    rows = [Row(what, Samples(tuple(took[what]), "ms"), target=target) for what, _, target in PAGES]
    rows += [
        Row(f"{what}, the first request of a server", Samples(tuple(times), "ms")) for what, times in first.items()
    ]
    notes = [f"{queues:,} queues, {BUSY} of them with {JOBS} jobs that wait and {JOBS} that failed."]
    return Report(rows, notes)


def serving(server: PrivateServer) -> AbstractContextManager[str]:
    """Return a block in which `delayq serve` answers; it gives the address."""
    return started(
        (sys.executable, "-m", "delayq", "--url", server.url, "--log-level", "error", "serve", "--port", "0")
    )


def fill(client: Any, queues: int, busy: int = BUSY, jobs: int = JOBS) -> None:
    """Register queues as they are left when their jobs are done; some of them hold jobs that wait and that failed."""
    now_ms = int(time.time() * 1000)
    seen_ms = now_ms + 3_600_000  # as if a mover ran, which would share the processor
    kept = {"schema": 1, "lease_ms": 30_000, "mover_tick": seen_ms, "scheduled_total": 7, "acked_total": 7}
    names = [f"q{number:05}" for number in range(queues)]
    error = failures.encode(Failure("ConnectionError", "the bank is away", "", now_ms, 3))
    pipe = client.pipeline(transaction=False)
    for number, name in enumerate(names):
        pipe.sadd(Globals(PREFIX).queues, name)
        pipe.hset(Keys(PREFIX, name).of("meta"), mapping=kept)
        if number % (queues // busy) == 0:
            _fill_one(pipe, Keys(PREFIX, name), jobs, now_ms, error)
        if number % 1_000 == 999:
            pipe.execute()
    pipe.execute()


def _fill_one(pipe: Any, keys: Keys, jobs: int, now_ms: int, error: bytes) -> None:
    for n, (job_id, envelope) in enumerate(raw_jobs(2 * jobs)):
        if n % 2:
            pipe.zadd(keys.of("scheduled"), {job_id: now_ms + 3_600_000 + n})
            pipe.hset(keys.of("jobs"), job_id, envelope)
        else:
            pipe.zadd(keys.of("failed"), {job_id: now_ms - n})
            pipe.hset(keys.of("jobs"), job_id, rewrite(envelope, attempts=3))
            pipe.hset(keys.of("errors"), job_id, error)
