"""Log records of a child carry the job that runs, in all three runners, and `--log-jobs` logs each attempt."""

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import pytest

from delayq.core.control_flow import Discard, Fail, Snooze
from delayq.jobs.function import job
from delayq.jobs.registry import Registry
from delayq.worker import log_context
from delayq.worker.attempt import Attempts
from delayq.worker.in_flight import InFlight, JobInFlight
from delayq.worker.runners.job_runner import JobRunner
from delayq.worker.shared_memory import SlotTable
from tests.support.fakes import delivery
from tests.support.waiting import wait_until

NOW_MS: Final = 1_795_790_900_508
shop: Final = logging.getLogger("shop.orders")


class Records(logging.Handler):
    """A log handler that keeps the attributes of all records."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.all.append({**vars(record), "message": record.getMessage()})

    def jobs(self, message: str) -> list[tuple[Any, ...]]:
        """Return the attributes of the job, for each record with this message."""
        names = ("job_id", "job", "queue", "attempt")
        return [tuple(one.get(name) for name in names) for one in self.all if one["message"] == message]


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Iterator[Records]:
    handler = Records()
    caplog.set_level(logging.INFO)
    logging.root.addHandler(handler)
    filters = {one: list(one.filters) for one in log_context.handlers()}
    log_context.install()
    yield handler
    logging.root.removeHandler(handler)
    for one, before in filters.items():
        one.filters[:] = before


class Runs:
    """A job runner with one handler."""

    def __init__(self, handler: Callable[..., Any], *, threads: int, log_jobs: bool = False, **options: Any) -> None:
        registry = Registry()
        self.now = 50.0
        self.in_flight = InFlight(SlotTable(["q"]), threads=threads, clock=lambda: self.now)
        job("ok", registry=registry, **options)(handler)
        attempts = Attempts(registry, now_ms=lambda: NOW_MS)
        self.runner = JobRunner(self.in_flight, attempts, registry, threads=threads, log_jobs=log_jobs)

    def start(self, *numbers: int) -> None:
        for number in numbers:
            self.in_flight.add([delivery(number)], read_at=0)
            one = self.in_flight.next_job()
            assert isinstance(one, JobInFlight)
            assert self.in_flight.start(one, now=self.now)
            self.runner.execute(one)

    def run(self, *numbers: int) -> None:
        self.start(*numbers)
        wait_until(lambda: self.in_flight.unfinished() == 0)
        self.in_flight.free([one for one, _ in self.in_flight.take_finished()])

    def close(self) -> None:
        self.runner.close()


def plain() -> None:
    shop.info("from the handler")
    asyncio.run(asyncio.to_thread(shop.info, "from a thread of the handler"))


async def coroutine() -> None:
    shop.info("from the handler")
    await asyncio.to_thread(shop.info, "from a thread of the handler")


RUNNERS: Final = pytest.mark.parametrize(
    ("handler", "threads"),
    [(plain, 1), (plain, 2), (coroutine, 1), (coroutine, 2)],
    ids=["inline", "threads", "loop", "loop beside threads"],
)


@RUNNERS
def test_records_of_a_handler_carry_its_job(handler: Callable[..., Any], threads: int, records: Records) -> None:
    runs = Runs(handler, threads=threads)
    runs.run(1)
    shop.info("between the jobs")
    runs.run(2)
    runs.close()
    for message in ("from the handler", "from a thread of the handler"):
        assert records.jobs(message) == [("job-1", "ok", "q", 1), ("job-2", "ok", "q", 1)]
    assert records.jobs("between the jobs") == [(None, None, None, None)]


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "event loop"])
def test_jobs_that_run_at_the_same_time_keep_apart(is_async: bool, records: Records) -> None:
    both = threading.Barrier(2, timeout=20)

    def meet() -> None:
        shop.info("before")
        both.wait()
        shop.info("after")

    async def meet_in_loop() -> None:
        shop.info("before")
        await asyncio.to_thread(both.wait)
        shop.info("after")

    runs = Runs(meet_in_loop if is_async else meet, threads=2)
    runs.run(1, 2)
    runs.close()
    for message in ("before", "after"):
        assert sorted(records.jobs(message)) == [("job-1", "ok", "q", 1), ("job-2", "ok", "q", 1)]


@RUNNERS
def test_records_after_the_handler_carry_its_job_too(
    handler: Callable[..., Any], threads: int, records: Records
) -> None:
    def backoff(attempt: int, error: BaseException) -> str:
        shop.info("from the backoff")
        return "10s"

    def broken() -> None:
        raise MemoryError

    async def broken_in_loop() -> None:
        raise MemoryError

    runs = Runs(broken_in_loop if handler is coroutine else broken, threads=threads, backoff=backoff)
    runs.run(1)
    runs.close()
    messages = ["from the backoff", "a handler ran out of memory; its child process will be replaced"]
    retry = "job job-1 (ok, queue q) is tried again in 10000 ms: MemoryError: "
    assert [records.jobs(message) for message in (*messages, retry)] == [[("job-1", "ok", "q", 1)]] * 3


def test_attributes_that_a_record_has_are_kept(records: Records) -> None:
    runs = Runs(lambda: shop.info("own", extra={"job_id": "mine", "queue": 7}), threads=1)
    runs.run(1)
    assert records.jobs("own") == [("mine", "ok", 7, 1)]


def test_all_handlers_get_the_filter_first(records: Records) -> None:
    seen: list[Any] = []
    handler = Records()

    def note(record: logging.LogRecord) -> bool:
        seen.append(getattr(record, "job_id", None))
        return True

    handler.addFilter(note)
    shop.addHandler(handler)
    try:
        log_context.install()
        log_context.install()  # a filter is not added twice
        assert [len(one.filters) for one in (handler, records)] == [2, 1]
        Runs(lambda: shop.info("from the handler"), threads=1).run(1)
    finally:
        shop.removeHandler(handler)
    assert seen == ["job-1"]


# -- one line per attempt ----------------------------------------------------------------------------------------------


def _snooze() -> None:
    raise Snooze("90s")


def _snooze_for_a_reason() -> None:
    raise Snooze("90s", reason="the warehouse is closed")


def _fail() -> None:
    raise ValueError("no")


def _fail_for_good() -> None:
    raise Fail("no")


def _discard() -> None:
    raise Discard


def _lines(records: Records) -> list[dict[str, Any]]:
    return [one for one in records.all if " took " in one["message"]]


@RUNNERS
@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (lambda: None, "done"),
        (_discard, "discarded: the handler discarded the job"),
        (_snooze, "released, runs again in 1m30s"),
        (_snooze_for_a_reason, "released, runs again in 1m30s: the warehouse is closed"),
        (_fail, "released, runs again in 10s"),
        (_fail_for_good, "failed"),
    ],
    ids=["done", "discarded", "snoozed", "snoozed for a reason", "retried", "failed"],
)
def test_each_attempt_is_one_line(
    end: Callable[[], None], outcome: str, handler: Callable[..., Any], threads: int, records: Records
) -> None:
    runs: Runs

    def slow() -> None:
        runs.now += 1.25
        end()

    async def slow_in_loop() -> None:
        slow()

    slow_handler = slow_in_loop if handler is coroutine else slow
    runs = Runs(slow_handler, threads=threads, log_jobs=True, tries=2, backoff="10s")
    runs.run(1)
    runs.close()
    (line,) = _lines(records)
    assert line["message"] == (
        f"job job-1 (ok, queue q): attempt 1 started at 2026-11-27T14:48:19.258Z, took 1.25s, {outcome}"
    )
    assert line["levelname"] == "INFO"
    members = ("job_id", "job", "queue", "attempt", "outcome", "started_ms", "started", "runtime_ms")
    assert [line[member] for member in members] == [
        *("job-1", "ok", "q", 1, re.split("[,:]", outcome)[0], NOW_MS - 1_250, "2026-11-27T14:48:19.258Z", 1_250)
    ]


def test_attempts_are_not_logged_by_default(records: Records) -> None:
    Runs(lambda: None, threads=1).run(1)
    assert _lines(records) == []


def test_an_attempt_whose_result_cannot_be_encoded_is_logged_once(records: Records) -> None:
    class Evil(dict[str, Any]):
        def values(self) -> Any:
            raise SystemExit(3)

    with suppress(SystemExit):
        Runs(lambda: Evil(n=1), threads=1, log_jobs=True, retention="1h", tries=1).run(1)
    assert [line["outcome"] for line in _lines(records)] == ["failed"]
