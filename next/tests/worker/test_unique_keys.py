"""A unique key until start: it is freed right before the handler, or the handler does not start."""

import logging
from typing import Any

import pytest

from delayq.backends.values import Acked, Delivery, DeliveryRef, Released, Settlement
from delayq.core.errors import BackendUnavailable
from delayq.jobs.function import job
from delayq.jobs.registry import Registry
from delayq.worker.attempt import Attempts
from delayq.worker.in_flight import InFlight
from delayq.worker.runners.job_runner import JobRunner
from delayq.worker.shared_memory import SlotTable
from tests.support.waiting import wait_until

HOW = [(1, False), (3, False), (1, True)]


class Runs:
    """Runs one job whose key is free from its start, and notes the order of events."""

    def __init__(self, *, threads: int, is_async: bool, answer: Any) -> None:
        self.events: list[str] = []
        self._answer = answer
        registry = Registry()

        def handler() -> None:
            self.events.append("handler")

        async def in_loop() -> None:
            handler()

        job("n", registry=registry)(in_loop if is_async else handler)
        self.in_flight = InFlight(SlotTable(["q"]), threads=threads)
        attempts = Attempts(registry, now_ms=lambda: 1_800_000_000_000, unlock=self._unlock)
        self.runner = JobRunner(self.in_flight, attempts, registry, threads=threads)

    def _unlock(self, ref: DeliveryRef, digest: str) -> bool:
        self.events.append(f"unlock {ref.id} {ref.entry} {digest}")
        if isinstance(self._answer, Exception):
            raise self._answer
        return bool(self._answer)

    def settle(self, lock: str = "digest.start") -> Settlement:
        envelope = b'{"v":1,"id":"a","name":"n","queue":"q","data":{},"attempts":0,"created_ms":0,"unique":"%b"}'
        self.in_flight.add([Delivery("q", "a", "1-0", envelope % lock.encode())], read_at=0)
        given = self.in_flight.next_job()
        assert given is not None and self.in_flight.start(given, now=0.0)
        self.runner.execute(given)
        wait_until(self.in_flight.has_finished)
        ((_, settlement),) = self.in_flight.take_finished()
        return settlement


@pytest.mark.parametrize(("threads", "is_async"), HOW)
def test_the_key_is_freed_before_the_handler(threads: int, is_async: bool) -> None:
    runs = Runs(threads=threads, is_async=is_async, answer=True)
    assert isinstance(runs.settle(), Acked)
    assert runs.events == ["unlock a 1-0 digest", "handler"]


@pytest.mark.parametrize("lock", ["digest", "digest.60000"])
def test_other_keys_are_not_freed_before_the_handler(lock: str) -> None:
    runs = Runs(threads=1, is_async=False, answer=True)
    assert isinstance(runs.settle(lock), Acked)
    assert runs.events == ["handler"]


@pytest.mark.parametrize(("threads", "is_async"), HOW)
def test_a_job_that_belongs_to_another_worker_does_not_start(threads: int, is_async: bool) -> None:
    runs = Runs(threads=threads, is_async=is_async, answer=False)
    settlement = runs.settle()
    assert runs.events == ["unlock a 1-0 digest"]
    assert isinstance(settlement, Released) and b'"attempts":0' in settlement.envelope


@pytest.mark.parametrize(("threads", "is_async"), HOW)
def test_without_an_answer_the_job_starts_later(threads: int, is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    runs = Runs(threads=threads, is_async=is_async, answer=BackendUnavailable("Redis is away."))
    with caplog.at_level(logging.WARNING):
        settlement = runs.settle()
    assert runs.events == ["unlock a 1-0 digest"]
    assert isinstance(settlement, Released)
    assert (settlement.delay_ms, b'"attempts":0' in settlement.envelope) == (1_000, True)
    assert "job a starts later, because its unique key could not be freed: Redis is away." in caplog.text
