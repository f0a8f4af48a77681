"""One worker with one child that runs jobs which do nothing, and what each costs the server."""

import json
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import Figure, Found, Measure
from benchmarks.jobs import PAYLOAD, jobs_left, plain_client, preload, server_cpu
from benchmarks.worker import running_worker, wait_until, worker_cpu

PRELOADED = 100_000
HIGH = 90_000
LOW = 10_000
BARE = 50_000
_ENVELOPE = json.dumps({"v": 1, "id": "x" * 26, "name": "noop", "queue": "default", "data": PAYLOAD, "attempts": 0})


@dataclass(frozen=True, slots=True)
class Mark:
    """What was so at one moment."""

    at: float
    left: int
    requests: int
    commands: int
    worker_cpu: float
    server_cpu: float


def run(url: str) -> Found:
    """Measure between two watermarks: neither the start of the worker counts nor its end."""
    preload(url, PRELOADED)
    with plain_client(url) as client, running_worker(url) as worker:
        wait_until(lambda: jobs_left(client) < HIGH, pause=0.005)
        begin = _mark(client, worker)
        wait_until(lambda: jobs_left(client) < LOW, pause=0.01)
        end = _mark(client, worker)
    jobs = begin.left - end.left
    pace = jobs / (end.at - begin.at)
    bare = _bare_loop(url)
    return {
        "jobs": pace,
        "bare loop": bare,
        "share of bare": 100 * pace / bare,
        "requests": 1_000 * (end.requests - begin.requests) / jobs,
        "commands": (end.commands - begin.commands) / jobs,
        "worker CPU": 1e6 * (end.worker_cpu - begin.worker_cpu) / jobs,
        "server CPU": 1e6 * (end.server_cpu - begin.server_cpu) / jobs,
    }


def _bare_loop(url: str) -> float:
    """Return the jobs a second of a loop over redis-py that reads a stream, decodes JSON and acknowledges."""
    with plain_client(url) as client:
        client.xgroup_create("bare", "group", mkstream=True)
        for _ in range(BARE // 1_000):
            with client.pipeline(transaction=False) as pipeline:
                for _ in range(1_000):
                    pipeline.xadd("bare", {"job": _ENVELOPE})
                pipeline.execute()
        begin = time.perf_counter()
        while read := client.xreadgroup("group", "me", {"bare": ">"}, count=250):
            ((_, rows),) = read
            for _, fields in rows:
                json.loads(fields["job"])
            ids = [entry for entry, _ in rows]
            with client.pipeline(transaction=False) as pipeline:
                pipeline.xack("bare", "group", *ids)
                pipeline.xdel("bare", *ids)
                pipeline.execute()
        return BARE / (time.perf_counter() - begin)


def _mark(client: Any, worker: int) -> Mark:
    """Look at the server and the worker. Of a script, INFO counts the call and each command in it."""
    at, left = time.perf_counter(), jobs_left(client)
    stats = client.info("commandstats")
    asked = [stats[name] for name in ("cmdstat_evalsha", "cmdstat_xreadgroup") if name in stats]
    return Mark(
        at,
        left,
        requests=sum(row["calls"] for row in asked),
        commands=sum(row["calls"] for row in stats.values()),
        worker_cpu=worker_cpu(worker),
        server_cpu=server_cpu(client),
    )


MEASURE = Measure(
    "process",
    run,
    (
        Figure(name="jobs", unit="jobs/s", least_ratio=0.9),
        Figure(name="bare loop", unit="jobs/s"),
        Figure(name="share of bare", unit="%", least_ratio=0.9),
        Figure(name="requests", unit="for 1,000 jobs"),
        Figure(name="commands", unit="a job"),
        Figure(name="worker CPU", unit="µs a job"),
        Figure(name="server CPU", unit="µs a job"),
    ),
)
