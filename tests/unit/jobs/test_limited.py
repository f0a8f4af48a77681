"""Limits without a server: whom they ask, and what happens when nobody can be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from delayq import Concurrency, JobContext, JobLimited, RateLimit, RateLimited, RunningJob, ThrottlesExceptions
from delayq.core.errors import BackendFull, BackendUnavailable, ConfigError, DelayqError, OutcomeUnknown
from delayq.core.limit_names import limit_of_job
from delayq.core.limiting import Acquire, Circuit, Probed, Question, Taken
from delayq.core.signals import Snooze
from delayq.jobs.middleware.limited import Limited
from delayq.jobs.opened import Opened
from delayq.jobs.talk import Talk

T = TypeVar("T")

MIDDLEWARE: list[Limited] = [
    Concurrency("api", 1, drop=True),
    RateLimited("api", RateLimit.per_minute(1), drop=True),
    ThrottlesExceptions(drop=True),
]
each = pytest.mark.parametrize("middleware", MIDDLEWARE, ids=repr)


class Answers:
    """`Limits` that answer, or raise, by the kind of the question."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers
        self.asked: list[str] = []

    def ask(self, question: Question[T], /) -> T:
        kind = type(question).__name__
        self.asked.append(kind)
        answer = self._answers[kind]
        if isinstance(answer, Exception):
            raise answer
        found: T = answer
        return found

    async def aask(self, question: Question[T], /) -> T:
        return self.ask(question)


def running(limits: Answers | None, told: list[object] | None = None) -> RunningJob:
    context = JobContext("j", "act", "orders", 1, 5, 0, 0, "1-1", talk=Talk(limits=limits))
    heard: list[object] = [] if told is None else told
    return RunningJob("act", Opened({}, lambda: None), lambda: context, heard.append)


def never(job: RunningJob) -> Any:
    raise AssertionError("it must not run")


async def anever(job: RunningJob) -> Any:
    never(job)


@each
@pytest.mark.parametrize("error", [BackendUnavailable("away"), OutcomeUnknown("lost"), BackendFull("full")], ids=repr)
def test_nothing_runs_without_permission_and_it_costs_no_attempt(middleware: Limited, error: DelayqError) -> None:
    """Not even what would be dropped: nobody said that it is over a limit."""
    told: list[object] = []
    limits = Answers(Acquire=error, Admit=error, Probe=error)
    with pytest.raises(Snooze) as caught:
        middleware.handle(running(limits, told), never)
    assert 3_000 < caught.value.delay_ms < 7_000
    assert isinstance(told[0], JobLimited)
    with pytest.raises(Snooze):
        asyncio.run(middleware.ahandle(running(limits), anever))


@each
def test_where_there_is_no_worker_nothing_is_limited(middleware: Limited) -> None:
    assert middleware.handle(running(None), lambda job: 7) == 7


@pytest.mark.parametrize("raised", [None, ValueError("x"), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr)
def test_a_place_that_cannot_be_given_back_changes_nothing_for_the_job(raised: BaseException | None) -> None:
    limits = Answers(Acquire=Taken(True, 0), Vacate=BackendUnavailable("away"))

    def handler(job: RunningJob) -> str:
        if raised is not None:
            raise raised
        return "done"

    if raised is None:
        assert Concurrency("api", 1).handle(running(limits), handler) == "done"
    else:
        with pytest.raises(type(raised)) as caught:
            Concurrency("api", 1).handle(running(limits), handler)
        assert caught.value is raised
    assert limits.asked == ["Acquire", "Vacate"]


def test_one_question_before_and_one_after() -> None:
    limits = Answers(Acquire=Taken(True, 0), Vacate=True, Probe=Probed(Circuit.CLOSED))
    Concurrency("api", 1).handle(running(limits), lambda job: None)
    ThrottlesExceptions().handle(running(limits), lambda job: None)
    assert limits.asked == ["Acquire", "Vacate", "Probe"], "a circuit without failures hears of no success"


def test_who_stands_outside_frees_nothing_of_the_inner_one() -> None:
    """Turned away by an inner limit, a job leaves the outer one."""
    limits = Answers(Acquire=Taken(True, 0), Vacate=True)
    inner: Callable[[RunningJob], Any] = lambda job: Concurrency("b", 1).handle(job, never)  # noqa: E731
    with pytest.raises(Snooze):
        Concurrency("a", 1).handle(running(Refusing(limits)), inner)
    assert limits.asked == ["Acquire", "Acquire", "Vacate"]


class Refusing(Answers):
    """Lets the first in, and no other."""

    def __init__(self, limits: Answers) -> None:
        super().__init__()
        self._limits = limits

    def ask(self, question: Question[T], /) -> T:
        answer: Any = self._limits.ask(question)
        if isinstance(question, Acquire) and question.place.name == "b":
            answer = Taken(False, 0)
        found: T = answer
        return found


def test_job_names_of_any_language_make_names_of_limits() -> None:
    assert limit_of_job("overlap", "order.close") == "overlap:order.close"
    assert limit_of_job("overlap", "a{b}") == "overlap:a%7Bb%7D"
    assert len(limit_of_job("overlap", "ü" * 200)) <= 128


@pytest.mark.parametrize("which", [[OSError], "OSError", (OSError, "x"), int])
def test_what_chooses_no_exceptions_is_refused_where_it_is_declared(which: Any) -> None:
    with pytest.raises(ConfigError, match="discard_when="):
        ThrottlesExceptions(discard_when=which)
