"""How long a job holds its place under a concurrency limit, as its context has it."""

import pytest

from delayq.backends.values import Delivery
from delayq.jobs.context import JobContext
from delayq.jobs.function import job
from delayq.jobs.registry import Registry
from delayq.worker.attempt import Attempts
from delayq.worker.in_flight import InFlight
from delayq.worker.runners.job_runner import JobRunner
from delayq.worker.shared_memory import SlotTable


@pytest.mark.parametrize(
    ("declared", "member", "grace", "place_ms"),
    [
        ("30s", b"", 2.0, 40_000),
        (None, b"", 2.0, 70_000),
        ("30s", b'"timeout_ms":1000,', 2.0, 11_000),
        ("30s", b"", 0.5, 38_500),
        ("0s", b"", 2.0, 0),
        ("30s", b'"timeout_ms":0,', 2.0, 0),
    ],
)
def test_a_place_lasts_for_the_timeout_its_grace_and_8_s(
    declared: str | None, member: bytes, grace: float, place_ms: int
) -> None:
    seen: list[tuple[int, str]] = []
    registry = Registry()

    @job("n", registry=registry, timeout=declared)
    def handler(context: JobContext) -> None:
        seen.append((context.place_ms, context.token))

    in_flight = InFlight(SlotTable(["q"]), threads=1)
    attempts = Attempts(registry, now_ms=lambda: 1_800_000_000_000)
    runner = JobRunner(in_flight, attempts, registry, threads=1, timeout_grace=grace)
    envelope = b'{"v":1,%b"id":"a","name":"n","queue":"q","data":{},"attempts":0,"created_ms":0}' % member
    in_flight.add([Delivery("q", "a", "1-0", envelope)], read_at=0)
    given = in_flight.next_job()
    assert given is not None and in_flight.start(given, now=0.0)
    runner.execute(given)
    assert seen == [(place_ms, "1-0")]
