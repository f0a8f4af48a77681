"""What a job costs the server in its whole life: scheduled, promoted, delivered, settled. Beside the bare protocol."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.figures import Report, Samples, Target, compared
from benchmarks.plan import Plan
from benchmarks.raw import RawQueue
from benchmarks.rig import Rig, quiet_logs, rig_on
from benchmarks.work import raw_jobs, registry_of, specs

NAME = "life"
TARGET = Target("≤", 1.3)
FUTURE_MS = 1_900_000_000_000
LOOK_S = 0.05


def run(plan: Plan) -> Report:
    """Microseconds of the server's CPU for a job, by its own count; both sides take turns on one server."""
    jobs = plan.size(50_000)
    wanted, given = specs(jobs), raw_jobs(jobs)
    with plan.server() as server, server.client() as client, rig_on(server) as rig, quiet_logs():
        raw = RawQueue(client)

        def ours() -> None:
            rig.clear(client)
            rig.client.schedule_many(wanted)
            rig.promote_at(FUTURE_MS)
            _consume(rig)

        def bare() -> None:
            raw.reset()
            raw.schedule_many(given, 1)
            raw.promote_all(FUTURE_MS)
            raw.consume_all()
            raw.forget(given)

        ours()
        bare()
        pairs = [(_spent_us(client, ours) / jobs, _spent_us(client, bare) / jobs) for _ in range(plan.runs)]
    own, other = (Samples(tuple(side), "µs") for side in zip(*pairs, strict=True))
    note = "The bare side drops its envelopes with HDEL, a thousand at a time: its loop leaves them behind."
    return Report([compared("a job's whole life, CPU of the server", own, other, TARGET)], [note])


def _consume(rig: Rig) -> None:
    entries = rig.scope.keys.of("entries")
    with rig.running(registry_of(_handler), mover=False):
        while rig.connector.commands().hlen(entries):
            time.sleep(LOOK_S)


def _handler(order_id: int, customer: str, total: str, note: str) -> None:
    """Does nothing."""


def _spent_us(client: Any, work: Callable[[], None]) -> float:
    before = _cpu_us(client)
    work()
    return _cpu_us(client) - before


def _cpu_us(client: Any) -> float:
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"]) * 1e6
