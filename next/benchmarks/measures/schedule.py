"""One producer that schedules one job at a time, due in an hour, and beside it the least that Redis can do for that."""

import time
from typing import Any

from benchmarks.figures import Figure, Found, Measure
from benchmarks.jobs import PAYLOAD, plain_client
from delayq import DelayQ

ROUNDS = 12
JOBS = 500

BARE = """
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
return 1
"""
"""Stores a job without a look at anything: no id is checked, no time is read, nobody is woken."""

ENVELOPE = "x" * 230
DUE_MS = 1_900_000_000_000


def run(url: str) -> Found:
    """Schedule in short rounds, delayq and bare in turn on one server."""
    with DelayQ(url) as client, plain_client(url) as bare:
        script = bare.script_load(BARE)
        _schedule(client)
        _store(bare, script, -1)
        ours = theirs = cpu = 0.0
        for number in range(ROUNDS):
            before = time.process_time()
            ours += _schedule(client)
            cpu += time.process_time() - before
            theirs += _store(bare, script, number)
    return {
        "jobs": ROUNDS * JOBS / ours,
        "bare EVALSHA": ROUNDS * JOBS / theirs,
        "share of bare": 100 * theirs / ours,
        "producer CPU": 1e6 * cpu / (ROUNDS * JOBS),
    }


def _schedule(client: DelayQ) -> float:
    started = time.perf_counter()
    for _ in range(JOBS):
        client.schedule("noop", PAYLOAD, delay="1h")
    return time.perf_counter() - started


def _store(bare: Any, script: str, number: int) -> float:
    ids = [f"{number}-{n:022d}" for n in range(JOBS)]
    started = time.perf_counter()
    for id in ids:
        bare.evalsha(script, 2, "bare:scheduled", "bare:jobs", id, DUE_MS, ENVELOPE)
    return time.perf_counter() - started


MEASURE = Measure(
    "schedule",
    run,
    (
        Figure(name="jobs", unit="jobs/s", least_ratio=0.9),
        Figure(name="bare EVALSHA", unit="jobs/s"),
        Figure(name="share of bare", unit="%", least_ratio=0.9),
        Figure(name="producer CPU", unit="µs a job"),
    ),
)
