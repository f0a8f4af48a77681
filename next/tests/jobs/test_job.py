"""Job classes: what they declare, how they run, and what is refused where it is declared."""

import asyncio
from typing import Any

import pytest

from delayq import Discard, Fail, InvalidInput, Job, JobContext, Retry
from delayq.core.errors import DelayqError
from delayq.core.outcome import Policy
from delayq.jobs.local_run import run
from delayq.jobs.registry import registry
from tests.jobs.support import context_of, payload_of


def test_a_class_is_a_dataclass_and_its_own_handler() -> None:
    class CloseOrder(Job, name="test.close", queue="orders", tries=3, backoff=["10s", "1m"], timeout="30s"):
        order_id: int
        reason: str = "unpaid"

        def handle(self) -> tuple[int, str]:
            return self.order_id, self.reason

    assert CloseOrder(order_id=42) == CloseOrder(order_id=42, reason="unpaid")
    assert payload_of(CloseOrder(order_id=42)) == {"order_id": 42, "reason": "unpaid"}
    handler = registry.get("test.close")
    policy = handler.policy(Policy())
    assert (policy.tries, policy.timeout_ms, handler.options.queue) == (3, 30_000, "orders")
    assert handler.call(handler.read(b'{"order_id": 7}'), context_of("test.close")) == (7, "unpaid")


def test_options_are_inherited_and_a_name_is_not() -> None:
    class Base(Job, queue="orders", tries=7):
        order_id: int

    class Close(Base, tries=2):
        def handle(self) -> None: ...

    assert (Close.job_name, Close.job_options.queue, Close.job_options.tries) == ("Close", "orders", 2)
    with pytest.raises(InvalidInput, match="has no `handle` method"):
        Base(order_id=1).dispatch()


def test_handle_may_take_the_context_and_ask_for_it() -> None:
    class Takes(Job):
        def handle(self, context: JobContext) -> tuple[int, int, bool]:
            return context.attempt, self.attempts(), self.context is context

    handler = registry.get("Takes")
    assert handler.call(handler.read(b"{}"), context_of("Takes", attempts=2)) == (3, 3, True)
    with pytest.raises(DelayqError, match="not running"):
        _ = Takes().context


def test_an_async_handle_is_a_coroutine() -> None:
    class Sleeps(Job):
        async def handle(self) -> str:
            return "slept"

    handler = registry.get("Sleeps")
    assert handler.is_async
    assert asyncio.run(handler.call({}, None)) == "slept"


class Decides(Job):
    how: str

    def handle(self) -> None:
        if self.how == "release":
            self.release("5m")
        if self.how in ("fail", "fail first"):
            self.fail("why")
        if self.how == "fail first":
            self.release()
        if self.how == "delete":
            self.delete()


@pytest.mark.parametrize(
    ("how", "signal"), [("release", Retry), ("fail", Fail), ("fail first", Fail), ("delete", Discard)]
)
def test_what_handle_decided_is_raised_at_its_end(how: str, signal: type[Exception]) -> None:
    with pytest.raises(signal):
        registry.get("Decides").call({"how": how}, None)


def test_a_field_may_not_hide_a_method() -> None:
    with pytest.raises(InvalidInput, match=r"'tags' of .* has the name of a method or attribute of Job"):

        class Clash(Job):
            tags: list[str]  # type: ignore[assignment]


def test_an_init_of_its_own_is_refused() -> None:
    with pytest.raises(InvalidInput, match="defines __init__"):

        class Own(Job):
            def __init__(self, x: int) -> None: ...


def test_handle_may_take_nothing_but_the_context() -> None:
    with pytest.raises(InvalidInput, match="has 2 parameters"):

        class Two(Job):
            def handle(self, context: JobContext, order_id: int) -> None: ...


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"tries": -1}, "tries is -1"),
        ({"timeout": "soon"}, "timeout 'soon' is not a duration"),
        ({"on_timeout": "explode"}, "on_timeout is 'explode'"),
        ({"trys": 3}, "option 'trys', which does not exist. Did you mean tries"),
        ({"deadline": "2026-13-01"}, "deadline"),
        ({"name": "a b"}, "job name 'a b' is not valid"),
    ],
)
def test_an_option_that_means_nothing_is_refused_where_it_is_declared(declared: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        type("Wrong", (Job,), {}, **declared)


def test_the_same_declaration_again_replaces_with_a_warning() -> None:
    def declare(result: int) -> None:
        class Cell(Job):
            def handle(self) -> int:
                return result

    declare(1)
    with pytest.warns(UserWarning, match="'Cell' is declared again"):
        declare(2)
    assert registry.get("Cell").call({}, None) == 2


def test_another_class_of_the_name_is_refused() -> None:
    class First(Job, name="same"):
        def handle(self) -> None: ...

    with pytest.raises(InvalidInput, match=r"'same' is declared twice: by .*First and by .*Second"):

        class Second(Job, name="same"):
            def handle(self) -> None: ...


class Failing(Job):
    n: int

    def handle(self) -> None:
        raise ValueError("broken")

    def failed(self, error: BaseException) -> None:
        told.append((self.n, repr(error)))
        assert (self.context.id, self.attempts()) == ("job-1", 1)


class FailingAsync(Job):
    def handle(self) -> None:
        raise ValueError("broken")

    async def failed(self, error: BaseException) -> None:
        told.append((0, repr(error)))


class FailingTwice(Job):
    def handle(self) -> None:
        raise ValueError("broken")

    def failed(self, error: BaseException) -> None:
        raise RuntimeError("the hook too")


told: list[tuple[int, str]] = []


@pytest.mark.parametrize("job", [Failing(n=1), FailingAsync(), FailingTwice()])
def test_a_job_is_told_that_it_failed(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    told.clear()
    with pytest.raises(ValueError, match="broken"):
        job.dispatch_sync(id="job-1")
    assert ("the `failed` hook of the job raised" in caplog.text) == isinstance(job, FailingTwice)
    if not isinstance(job, FailingTwice):
        assert told == [(int(isinstance(job, Failing)), "ValueError('broken')")]


def test_a_local_run_returns_how_the_job_ended() -> None:
    class Answers(Job):
        def handle(self, context: JobContext) -> str:
            return context.id

    ran = Answers().dispatch_sync(id="a-1")
    assert (ran.result, ran.error) == ("a-1", None)

    class Releases(Job):
        def handle(self) -> None:
            self.release("1m")

    assert "RunAgain" in repr(Releases().dispatch_sync().outcome)
    with pytest.raises(DelayqError, match="The envelope of 1 bytes cannot be read"):
        run(b"{")
