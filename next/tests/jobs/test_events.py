"""Events of jobs in this process: of dispatches, retries, local runs and travel."""

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from delayq import (
    DelayQ,
    Discard,
    Fail,
    Job,
    JobDispatched,
    JobEnded,
    JobRetryRequested,
    JobStarted,
    Manager,
    Retry,
    Snooze,
    adispatch,
    batch,
    chain,
    dispatch,
    job,
    listener,
    using_manager,
)
from delayq.testing import Travel, run_job

pytestmark = pytest.mark.usefixtures("no_listeners")

ERRORS: dict[str, BaseException] = {
    "retried": Retry("1m"),
    "snoozed": Snooze("1m"),
    "failed": Fail("sold out"),
    "discarded": Discard(),
}
tenant: ContextVar[str] = ContextVar("tenant", default="")


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What listeners of attempts received."""
    seen: list[Any] = []

    @listener(JobStarted)
    def started(event: JobStarted) -> None:
        tenant.set(f"tenant of {event.id}")
        seen.append(("started", event.id, event.name, event.queue, event.attempt, event.tags))

    @listener(JobEnded)
    def ended(event: JobEnded) -> None:
        seen.append((event.outcome, event.error, tenant.get(), event.seconds >= 0))

    yield seen


@pytest.fixture
def dispatched() -> list[JobDispatched]:
    seen: list[JobDispatched] = []
    listener(JobDispatched)(seen.append)
    return seen


class Close(Job, name="events.close", tries=2):
    end: str = "done"

    def handle(self) -> str:
        assert tenant.get().startswith("tenant of ")
        if self.end != "done":
            raise ERRORS[self.end]
        return "closed"


@job("events.aclose", tries=1)
async def aclose(end: str = "done") -> None:
    if end != "done":
        raise ERRORS[end]


@pytest.mark.parametrize("end", ["done", *ERRORS])
def test_one_attempt_emits_both_in_the_context_of_the_job(ends: list[Any], manager: Manager, end: str) -> None:
    ran = run_job(Close(end=end).tags("a").on_queue("q"), attempts=1, id="close-1")
    is_error = end in ("retried", "failed")
    if end == "retried":
        end = "failed"  # this is the last attempt
    assert ends == [
        ("started", "close-1", "events.close", "q", 2, ("a",)),
        (end, ran.error if is_error else None, "tenant of close-1", True),
    ]
    assert tenant.get() == ""


def test_a_local_run_emits_both_also_when_it_raises(ends: list[Any], manager: Manager) -> None:
    Close().dispatch_sync()
    with pytest.raises(Fail):
        Close(end="failed").dispatch_sync()
    asyncio.run(aclose.job().adispatch_sync())
    assert [one[0] for one in ends] == ["started", "done", "started", "failed", "started", "done"]


def test_an_error_of_a_listener_leaves_the_outcome_as_it_is(manager: Manager) -> None:
    tenant.set("tenant of the test")
    for kind in (JobStarted, JobEnded):
        listener(kind)(lambda event: 1 / 0)
    assert Close().dispatch_sync().result == "closed"
    assert run_job(Close(end="snoozed")).error is ERRORS["snoozed"]
    tenant.set("")


def test_a_job_whose_handler_is_not_called_emits_neither(ends: list[Any], manager: Manager) -> None:
    ran = run_job(Close(), attempts=2)  # its tries are used up
    assert ran.error is not None
    assert ends == []


@pytest.mark.parametrize("name", ["events.close", "events.aclose"])
def test_travel_emits_both(ends: list[Any], delayq_travel: Travel, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("DELAYQ_URL", "redis://127.0.0.1:1/0")
    with using_manager(Manager()):
        dispatch(name, {"end": "snoozed"}, id="t")
    delayq_travel("2s")
    assert [one[0] for one in ends] == ["started", "snoozed"]
    assert ends[1][2] == "tenant of t"


def test_each_stored_job_is_emitted_after_a_dispatch(dispatched: list[JobDispatched], sent: DelayQ) -> None:
    first = dispatch("order.close", {"n": 1}, id="1", delay="15m", queue="q")
    dispatch("order.close", {"n": 1}, id="1", queue="q")
    dispatch("order.close", {"n": 2}, id="1", queue="q", on_conflict="replace")
    Close().dispatch(queue="q")
    assert dispatched[0] == JobDispatched("1", "order.close", "q", first.due_ms, "created")
    assert [(one.name, one.outcome) for one in dispatched[1:]] == [
        ("order.close", "replaced"),
        ("events.close", "created"),
    ]
    sent.schedule("order.close")
    assert len(dispatched) == 3


def test_async_dispatches_emit_too(dispatched: list[JobDispatched], manager: Manager) -> None:
    async def send() -> None:
        await adispatch("order.close", id="1")
        await chain(Close(), Close()).adispatch()
        await manager.connection().aclient.close()

    asyncio.run(send())
    assert [one.name for one in dispatched] == ["order.close", "events.close"]


def test_a_chain_emits_for_its_first_job_and_a_batch_not(dispatched: list[JobDispatched], sent: DelayQ) -> None:
    ref = chain(Close(), Close()).dispatch()
    batch([Close()]).dispatch()
    chain(batch([Close()]), Close()).dispatch()
    assert [one.id for one in dispatched] == [ref.id]


def test_a_retry_is_emitted_after_it_is_stored(sent: DelayQ) -> None:
    seen: list[JobRetryRequested] = []
    listener(JobRetryRequested)(seen.append)
    for job_id in ("1", "2"):
        sent.schedule("order.close", id=job_id, queue="q", delay="1h")
        sent.archive(job_id, queue="q")
    sent.retry("1", queue="q")
    assert [one.id for one in sent.retry_failed("q")] == ["2"]
    assert seen == [JobRetryRequested("1", "order.close", "q"), JobRetryRequested("2", "order.close", "q")]
