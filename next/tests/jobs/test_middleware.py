"""Middleware around handlers, as `dispatch_sync` and workers run it."""

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from delayq import (
    Discard,
    Fail,
    FailOnException,
    InvalidInput,
    Job,
    JobContext,
    JobTimedOut,
    Next,
    RunningJob,
    Skip,
    SkipIfBatchCancelled,
    handles,
    job,
    use_middleware,
)
from delayq.core.envelope import decode
from delayq.core.outcome import Done, GiveUp, Policy, RunAgain, decide
from delayq.jobs.dispatch import _by_name
from delayq.jobs.local_run import Ran, arun, run
from delayq.jobs.middleware import AnyMiddleware, check_middleware
from delayq.jobs.registry import Registry, registry
from tests.support.queue import envelope_of

WRONG: Any = "a text"


class Notes:
    """Writes its name before and after the handler."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def handle(self, job: RunningJob, next: Next) -> Any:
        self.log.append(f"{self.name}>")
        result = next(job)
        self.log.append(f"<{self.name}")
        return result

    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        self.log.append(f"{self.name}>")
        result = await next(job)
        self.log.append(f"<{self.name}")
        return result


class OnlySync:
    def handle(self, job: RunningJob, next: Next) -> Any:
        return next(job)


class OnlyAsync:
    async def ahandle(self, job: RunningJob, next: Next) -> Any:
        return await next(job)


def run_job(name: str) -> Ran:
    return run(envelope_of("id", name=name))


def test_middleware_runs_from_the_outside_to_the_inside() -> None:
    log: list[str] = []

    class Close(Job, name="close", middleware=[Notes("declared", log)]):
        def handle(self) -> str:
            log.append("handler")
            return "result"

        def middleware(self) -> Sequence[AnyMiddleware]:
            return [Notes("own", log)]

    use_middleware(Notes("global", log))
    ran = Close().dispatch_sync()
    assert ran.result == "result"
    assert log == ["global>", "declared>", "own>", "handler", "<own", "<declared", "<global"]


def test_middleware_of_an_async_handler_awaits_it() -> None:
    log: list[str] = []

    @job("async", middleware=[Notes("a", log), Notes("b", log)])
    async def close() -> int:
        await asyncio.sleep(0)
        log.append("handler")
        return 7

    assert asyncio.run(arun(envelope_of("id", name="async"))).result == 7
    assert log == ["a>", "b>", "handler", "<b", "<a"]


def test_middleware_sees_the_job() -> None:
    seen: list[RunningJob] = []

    class Looks:
        def handle(self, job: RunningJob, next: Next) -> Any:
            seen.append(job)
            return next(job)

    class Close(Job, name="class", middleware=[Looks()]):
        order_id: int = 42

        def handle(self) -> None:
            assert self is seen[0].instance

    @job("function", middleware=[Looks()])
    def close(context: JobContext, order_id: int = 42) -> None: ...

    @handles("Letters", middleware=[Looks()])
    class Letters:
        def send(self, context: JobContext, data: Any) -> None: ...

    Close().dispatch_sync()
    close.job().dispatch_sync()
    _by_name("Letters@send", {"to": "ann"}).dispatch_sync()
    assert [(one.context.name, one.data) for one in seen] == [
        ("class", {"order_id": 42}),
        ("function", {"order_id": 42}),
        ("Letters@send", {"to": "ann"}),
    ]
    assert [one.instance is None for one in seen] == [False, True, True]


def test_a_middleware_that_does_not_go_on_ends_the_job_as_done() -> None:
    class Stops:
        def handle(self, job: RunningJob, next: Next) -> Any:
            return None

    @job("stopped", middleware=[Stops()])
    def never() -> None:
        raise AssertionError

    assert run_job("stopped").outcome == Done()


@pytest.mark.parametrize(
    ("skip", "runs"),
    [
        (Skip.when(True), False),
        (Skip.when(False), True),
        (Skip.unless(True), True),
        (Skip.when(lambda job: job.data["n"] == 1), False),
        (Skip.unless(lambda job: job.data["n"] == 1), True),
    ],
)
def test_skip(skip: Skip, runs: bool) -> None:
    ran: list[int] = []

    @job("plain", middleware=[skip])
    def plain(n: int = 1) -> None:
        ran.append(n)

    @job("async", middleware=[skip])
    async def asynchronous(n: int = 1) -> None:
        ran.append(n)

    run(envelope_of("id", name="plain").replace(b"{}", b'{"n":1}'))
    asyncio.run(arun(envelope_of("id", name="async").replace(b"{}", b'{"n":1}')))
    assert ran == ([1, 1] if runs else [])


@pytest.mark.parametrize(
    ("middleware", "error", "outcome"),
    [
        (FailOnException(ValueError), ValueError("a"), GiveUp),
        (FailOnException(KeyError, ValueError), ValueError("a"), GiveUp),
        (FailOnException(lambda error: "a" in str(error)), ValueError("a"), GiveUp),
        (FailOnException(KeyError), ValueError("a"), RunAgain),
        (FailOnException(lambda error: "b" in str(error)), ValueError("a"), RunAgain),
        (FailOnException(Exception), Discard(), Done),
    ],
)
def test_fail_on_exception(middleware: FailOnException, error: Exception, outcome: type) -> None:
    handler_error: list[BaseException] = []

    @job("raises", middleware=[middleware])
    def raises() -> None:
        raise error

    handler = registry.get("raises")
    context = JobContext(_envelope("raises"), b"", tries=3, due_ms=0)
    try:
        handler.call({}, context)
    except Exception as raised:
        handler_error.append(raised)
    decided = decide(_envelope("raises"), Policy(tries=3), handler_error[0], now_ms=lambda: 0, rand=lambda: 0.0)
    assert isinstance(decided, outcome)
    if isinstance(decided, GiveUp):
        assert decided.error is error
        assert isinstance(handler_error[0], Fail)


def _envelope(name: str) -> Any:
    return decode(envelope_of("id", name=name))


def test_skip_if_batch_cancelled_runs_a_job_without_a_batch() -> None:
    @job("alone", middleware=[SkipIfBatchCancelled()])
    def alone() -> str:
        return "ran"

    assert run_job("alone").result == "ran"


@pytest.mark.parametrize(
    ("middleware", "words"),
    [
        ("Notes", "not a list"),
        ([object()], "cannot run"),
        ([Notes], "cannot run"),
        ([OnlyAsync()], "is not async, but the middleware OnlyAsync has no method `handle`"),
    ],
)
def test_middleware_that_cannot_run_is_refused_at_the_declaration(middleware: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as refused:

        @job("plain", middleware=middleware)
        def plain() -> None: ...

    assert (refused.value.field, refused.value.hint != "") == ("middleware", True)


def test_a_middleware_that_does_not_fit_the_handler_is_refused_in_any_order() -> None:
    jobs = Registry()
    with pytest.raises(InvalidInput, match="is async, but the middleware OnlySync has no method `ahandle`"):

        @job("async", middleware=[OnlySync()], registry=jobs)
        async def declared() -> None: ...

    @job("other", registry=jobs)
    async def asynchronous() -> None: ...

    with pytest.raises(InvalidInput, match="OnlySync has no method `ahandle`"):
        jobs.use(OnlySync())
    jobs.use(OnlyAsync())
    with pytest.raises(InvalidInput, match="OnlyAsync has no method `handle`"):

        @job("plain", registry=jobs)
        def plain() -> None: ...


def test_a_method_with_the_wrong_kind_of_middleware_is_refused_at_the_declaration() -> None:
    with pytest.raises(InvalidInput, match="'Mails@send' is async, but the middleware OnlySync has no method"):

        @handles("Mails", middleware=[OnlySync()], registry=Registry())
        class Mails:
            async def send(self, context: JobContext, data: Any) -> None: ...

    class Wrong:
        async def handle(self, job: RunningJob, next: Next) -> Any: ...

    with pytest.raises(InvalidInput, match="The middleware Wrong of the job 'wrong' has an async method `handle`"):

        @job("wrong", middleware=[Wrong()], registry=Registry())
        def wrong() -> None: ...


def test_a_middleware_that_forgets_await_is_an_error() -> None:
    class Forgets:
        async def ahandle(self, job: RunningJob, next: Next) -> Any:
            return next(job)

    ran: list[int] = []

    @job("forgets", middleware=[Forgets()])
    async def forgets() -> None:
        ran.append(1)

    outcome = run_job("forgets").outcome
    assert isinstance(outcome, GiveUp) and "returned a coroutine" in str(outcome.error)
    assert ran == []


@pytest.mark.parametrize("make", [lambda: FailOnException(JobTimedOut), lambda: FailOnException(int)])  # type: ignore[arg-type]
def test_fail_on_exception_refuses_classes_that_it_cannot_catch(make: Any) -> None:
    with pytest.raises(InvalidInput, match=r"FailOnException was given the class .* on_timeout='fail'"):
        make()


@pytest.mark.parametrize("make", [lambda: Skip.when(WRONG), FailOnException, lambda: FailOnException(WRONG)])
def test_built_in_middleware_refuses_wrong_arguments(make: Any) -> None:
    with pytest.raises(InvalidInput):
        make()


def test_an_async_condition_is_refused() -> None:
    """A coroutine is true, so each job would be skipped or fail."""

    async def is_night(job: object) -> bool:
        return False

    for make in (lambda: Skip.when(is_night), lambda: Skip.unless(is_night), lambda: FailOnException(is_night)):
        with pytest.raises(InvalidInput, match=r"is_night is async, but delayq calls it without `await`"):
            make()


def test_middleware_that_does_not_take_next_is_refused() -> None:
    class Short:
        def handle(self, job: object) -> None: ...

    with pytest.raises(InvalidInput, match=r"`handle` of the middleware Short does not take a job and `next`"):
        check_middleware([Short()])


def test_a_plain_function_around_an_async_one_is_a_condition() -> None:
    async def is_night(job: object) -> bool:
        return True

    @functools.wraps(is_night)
    def plain(job: object) -> bool:
        return asyncio.run(is_night(job))

    class Object:
        async def __call__(self, job: object) -> bool:
            return True

    assert Skip.when(plain).handle(None, _raise) is None  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="is async"):
        Skip.when(Object())


def test_a_condition_that_returns_a_coroutine_is_an_error() -> None:
    def asks_later(job: object) -> object:
        return asyncio.sleep(0)

    for middleware in (Skip.when(asks_later), FailOnException(asks_later)):
        with pytest.raises(TypeError, match="returned a coroutine"):
            middleware.handle(None, _raise)  # type: ignore[arg-type]


def _raise(job: object) -> None:
    raise ValueError


def test_a_decorator_may_add_next() -> None:
    def adds_next(function: Callable[[Any, object], None]) -> Callable[[Any, object, Next], Any]:
        @functools.wraps(function)
        def handle(self: Any, job: object, next: Next) -> Any:
            function(self, job)
            return next(job)  # type: ignore[arg-type]

        return handle

    class Timed:
        @adds_next
        def handle(self, job: object) -> None: ...

    assert check_middleware([Timed()])
