"""Job types without a worker: what one would report."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from delayq.core.job_types import TIMES_MS
from delayq.redis.calls.activity import tally
from delayq.redis.calls.call import Scope
from delayq.redis.client import Client
from delayq.redis.send import through


def report(q: Client, queue: str, name: str, times_ms: Sequence[float] = (), **outcomes: int) -> None:
    """Report attempts of one job name on a queue: their run times, and how many had which outcome."""
    counts: dict[str, float] = {"took_ms": sum(times_ms), **outcomes}
    for ms in times_ms:
        part = str(bisect_left(TIMES_MS, ms))
        counts[part] = counts.get(part, 0) + 1
    types: Mapping[str, Mapping[str, float]] = {name: counts}
    through(q.connector, tally(Scope(q.options, queue), {}, types))
    q.connector.commands().sadd(f"{q.options.prefix}:queues", queue)
