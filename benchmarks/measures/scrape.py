"""How long /metrics takes: one queue with a million jobs that wait, among twenty; before and after it is filled."""

from __future__ import annotations

import re
import sys
import time
from typing import Any

from benchmarks.figures import Report, Row, Samples, Target
from benchmarks.fill import fill
from benchmarks.measures.dashboard import get
from benchmarks.measures.http import started
from benchmarks.plan import Plan
from benchmarks.work import QUEUE
from delayq.http.metrics import CACHED_S
from delayq.redis.keys import Globals, Keys

NAME = "scrape"
TARGET = Target("≤", 50)
QUEUES = 20
PREFIX = "delayq"


def run(plan: Plan) -> Report:
    """Each look is a new one: the next is asked for when the last is too old to be shown again."""
    waiting = plan.size(plan.growth)
    rows: list[Row] = []
    with plan.server() as server, server.client() as client:
        register(client)
        ours = (sys.executable, "-m", "delayq", "--url", server.url, "--log-level", "error", "serve", "--port", "0")
        with started(ours) as url:
            first = get(url, "/metrics")[0]
            empty = looks(plan, url, 0)
            fill(client, PREFIX, waiting)
            full = looks(plan, url, waiting)
            again = Samples(tuple(get(url, "/metrics")[0] for _ in range(plan.runs)), "ms")
    rows = [
        Row(f"scrape, {waiting:,} jobs wait", full, target=TARGET),
        Row("the slowest of these", Samples((full.high,), "ms"), target=TARGET),
        Row("scrape, none waits", empty),
        Row("another one within five seconds", again),
        Row("the first of a new server", Samples((first,), "ms")),
    ]
    return Report(rows, [f"{QUEUES} queues, one of them with all the jobs; each request over a connection of its own."])


def register(client: Any) -> None:
    """Queues as a first schedule leaves them."""
    names = [QUEUE, *(f"{QUEUE}-{number}" for number in range(1, QUEUES))]
    client.sadd(Globals(PREFIX).queues, *names)
    for name in names:
        client.hset(Keys(PREFIX, name).of("meta"), mapping={"schema": "1", "lease_ms": "30000"})


def looks(plan: Plan, url: str, waiting: int) -> Samples:
    """Scrapes that each look anew. Raises `RuntimeError` when the last one does not see the jobs."""
    took, page = list[float](), ""
    for _ in range(plan.runs):
        time.sleep(CACHED_S)
        ms, page = get(url, "/metrics")
        took.append(ms)
    seen = re.search(rf'^delayq_jobs{{queue="{QUEUE}",state="scheduled"}} (.+)$', page, re.MULTILINE)
    if seen is None or float(seen[1]) != waiting:
        raise RuntimeError(f"the page does not say that {waiting} jobs wait")
    return Samples(tuple(took), "ms")
