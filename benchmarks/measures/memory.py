"""Server memory of a waiting job, and what the envelope adds to a payload."""

from __future__ import annotations

from typing import Any

from benchmarks.figures import Report, Row, Samples, Target
from benchmarks.plan import Plan
from benchmarks.raw import JOBS, SCHEDULED
from benchmarks.rig import rig_on
from benchmarks.work import PAYLOAD_BYTES, specs

NAME = "memory"
TARGET = Target("≤", 1.05)
WAITING = 100_000

Waiting = list[tuple[bytes, float, bytes]]


def run(plan: Plan) -> Report:
    """Memory after minus before over the number of jobs; each side has a fresh server, both hold the same bytes."""
    count = plan.size(WAITING)
    with plan.server() as server, server.client() as client:
        with rig_on(server) as rig:
            before = _used(client)
            rig.client.schedule_many(specs(count))
            keys = rig.scope.keys
        ours = (_used(client) - before) / count
        waiting = _read(client, keys.of("scheduled"), keys.of("jobs"))
    with plan.server() as server, server.client() as client:
        before = _used(client)
        _write(client, waiting)
        raw = (_used(client) - before) / count
    envelope = waiting[0][2]
    return Report(
        [
            Row("memory per waiting job", _bytes(ours), _bytes(raw), Samples((ours / raw,), "×"), TARGET),
            Row("what the envelope adds to a payload of 100 bytes", _bytes(len(envelope) - PAYLOAD_BYTES)),
        ],
        [f"An envelope with such a payload: `{envelope.decode()}`"],
    )


def _bytes(value: float) -> Samples:
    return Samples((float(value),), "bytes")


def _used(client: Any) -> int:
    """What the server holds, without the buffers of its connections."""
    info = client.info("memory")
    return int(info["used_memory"]) - int(info["mem_clients_normal"])


def _read(client: Any, scheduled: str, jobs: str) -> Waiting:
    envelopes = client.hgetall(jobs)
    return [(job_id, due, envelopes[job_id]) for job_id, due in client.zrange(scheduled, 0, -1, withscores=True)]


def _write(client: Any, waiting: Waiting) -> None:
    for start in range(0, len(waiting), 1_000):
        some = waiting[start : start + 1_000]
        client.zadd(SCHEDULED, {job_id: due for job_id, due, _ in some})
        client.hset(JOBS, mapping={job_id: envelope for job_id, _, envelope in some})
