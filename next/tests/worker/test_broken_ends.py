"""Code of the application that raises after the handler: its job is settled, and its thread runs other jobs."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from delayq.backends.values import Acked, Failed, Released, Settlement
from delayq.jobs.function import job
from delayq.jobs.models import ModelField
from delayq.jobs.options import JobOptions
from delayq.jobs.registry import Registry
from delayq.worker.attempt import Attempts
from delayq.worker.in_flight import InFlight
from delayq.worker.runners.job_runner import JobRunner
from delayq.worker.shared_memory import Part, SlotTable
from tests.support.fakes import delivery
from tests.support.waiting import wait_until


class EvilResult(dict[str, Any]):
    def values(self) -> Any:
        raise SystemExit(3)


def bad_backoff(attempt: int, error: Exception) -> str:
    raise SystemExit(3)


class Runs:
    """A runner with one way of running handlers, and the settlements of its jobs."""

    def __init__(self, *, threads: int, is_async: bool) -> None:
        registry = Registry()
        self.in_flight = InFlight(SlotTable(["q"]), threads=threads)
        self.threads = threads
        _declare(registry, is_async=is_async)
        attempts = Attempts(registry, now_ms=lambda: 1_800_000_000_000)
        self.runner = JobRunner(self.in_flight, attempts, registry, threads=threads)
        self._number = 0

    def settle(self, name: str) -> Settlement:
        """Run a job and return its settlement."""
        self._number += 1
        self.in_flight.add([delivery(self._number, name=name)], read_at=0)
        job = self.in_flight.next_job()
        assert job is not None
        assert self.in_flight.start(job, now=0.0)
        self.runner.execute(job)
        wait_until(self.in_flight.has_finished)
        ((finished, settlement),) = self.in_flight.take_finished()
        self.in_flight.free([finished])
        assert self.in_flight.free_threads() == self.threads
        return settlement


def _declare(registry: Registry, *, is_async: bool) -> None:
    def returns() -> None:
        pass

    def raises() -> None:
        raise ValueError("the error of the handler")

    def result() -> Any:
        return EvilResult(n=1)

    def awaited(function: Any) -> Any:
        async def handler() -> Any:
            return function()

        return handler if is_async else function

    job("returns", registry=registry)(awaited(returns))
    job("backoff", backoff=bad_backoff, registry=registry)(awaited(raises))
    job("result", retention="1h", registry=registry)(awaited(result))
    for hook, error in (("exits", SystemExit(3)), ("interrupts", KeyboardInterrupt())):
        registry.add(Hooked(hook, error, is_async=is_async))


class Hooked:
    """The handler of a job that fails at once, and whose hook raises an error."""

    wants_context = False
    has_failed_hook = True
    has_middleware = False
    model_fields: Mapping[str, ModelField] = {}
    payload_members = None

    def __init__(self, name: str, error: BaseException, *, is_async: bool) -> None:
        self.name = self.origin = name
        self.options = JobOptions(tries=1)
        self.policy = self.options.policy
        self.is_async = is_async
        self._error = error

    def read(self, data: object) -> None:
        pass

    def call(self, job: object, context: object) -> Any:
        if self.is_async:
            return self._acall()
        raise ValueError("the error of the handler")

    def instance(self, job: object, context: object) -> None: ...

    def call_on(self, instance: object, job: object, context: object) -> None: ...

    async def _acall(self) -> None:
        raise ValueError("the error of the handler")

    def failed(self, job: object, error: BaseException, context: object) -> None:
        raise self._error


@pytest.fixture(params=["inline", "threads", "async"])
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    runs = Runs(threads=1 if request.param == "inline" else 2, is_async=request.param == "async")
    yield runs
    runs.runner.close()


def test_a_backoff_function_that_exits_is_replaced(runs: Runs) -> None:
    for _ in range(3):
        settlement = runs.settle("backoff")
        assert isinstance(settlement, Released)
        assert b"the error of the handler" in settlement.failure
        assert b"The backoff function of the job failed too (SystemExit(3))" in settlement.failure
    assert isinstance(runs.settle("returns"), Acked)


def test_the_slot_shows_which_code_may_hang_after_the_handler(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    marked: list[Part] = []
    monkeypatch.setattr(runs.in_flight.slots, "mark_part", lambda slot, part: marked.append(part))
    for name in ("returns", "backoff", "exits"):
        runs.settle(name)
    assert marked == [Part.BACKOFF, Part.BACKOFF, Part.HOOK]


def test_a_result_that_exits_while_it_is_encoded_is_an_error_of_the_job(runs: Runs) -> None:
    for _ in range(3):
        settlement = runs.settle("result")
        assert isinstance(settlement, Released)
        assert b'"type":"SystemExit"' in settlement.failure
    assert isinstance(runs.settle("returns"), Acked)


@pytest.mark.parametrize("hook", ["exits", "interrupts"])
def test_a_failed_hook_that_ends_the_program_changes_nothing(runs: Runs, hook: str) -> None:
    for _ in range(3):
        settlement = runs.settle(hook)
        assert isinstance(settlement, Failed)
        assert b"the error of the handler" in settlement.failure
    assert isinstance(runs.settle("returns"), Acked)


def test_the_failure_is_logged_once_before_the_hook_is_called(
    runs: Runs, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[str] = []
    monkeypatch.setattr(Hooked, "failed", lambda *_: known.extend(caplog.messages))
    runs.settle("exits")
    assert known == ["job job-1 (exits, queue q) failed at attempt 1: ValueError: the error of the handler"]
    assert caplog.messages == known
