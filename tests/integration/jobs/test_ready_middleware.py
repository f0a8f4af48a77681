"""The middleware that comes with delayq: `Skip`, `Release`, `FailOnException`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from delayq import (
    Discard,
    FailOnException,
    Middleware,
    Release,
    Retry,
    RunningJob,
    Skip,
    ThrottlesExceptions,
    dispatch,
    job,
)
from delayq.core.errors import ConfigError
from delayq.core.states import State
from tests.support.around import KINDS, Marks, declare
from tests.support.station import Station

pytestmark = pytest.mark.usefixtures("manager")


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_costs_no_attempt_however_often(station: Station, kind: str) -> None:
    marks: Marks = station.tape()
    job_id = declare(kind, marks, [Release.when(lambda job: len(station.ends(job_id)) < 3, "1h")], tries=1)()
    for _ in range(3):
        station.drain()
        station.client.run_now(job_id)
    station.drain()
    assert station.ends(job_id) == ["snoozed"] * 3 + ["done"]
    assert marks == ["run"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("middleware", "runs"),
    [
        (Skip.when(True), False),
        (Skip.when(False), True),
        (Skip.unless(True), True),
        (Skip.unless(lambda job: job.fields["number"] > 1), False),
        (Skip.when(lambda job: job.fields["number"] > 1), True),
        (Release.unless(True, "1h"), True),
    ],
)
def test_a_condition_is_known_or_asked_at_each_attempt(
    station: Station, kind: str, middleware: Middleware, runs: bool
) -> None:
    marks: Marks = station.tape()
    job_id = declare(kind, marks, [middleware], retention="1h")()
    station.drain()
    assert station.state(job_id) is State.COMPLETED
    assert station.job(job_id).result == (1 if runs else None)
    assert marks == (["run"] if runs else [])


def failing(error: Exception, middleware: Middleware, *, is_async: bool) -> str:
    if is_async:

        @job("act", middleware=[middleware], tries=5, backoff="1h")
        async def act() -> None:
            raise error
    else:

        @job("act", middleware=[middleware], tries=5, backoff="1h")
        def act() -> None:
            raise error

    return dispatch("act").id


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("error", "state"),
    [
        (KeyError("sku"), State.FAILED),
        (ValueError("no such order"), State.FAILED),
        (ValueError("try again"), State.SCHEDULED),
        (Retry("1h"), State.SCHEDULED),
        (Discard("no such order"), State.ABSENT),
    ],
    ids=repr,
)
def test_fail_on_exception(station: Station, error: Exception, state: State, is_async: bool) -> None:
    middleware = FailOnException(LookupError, lambda raised: "no such order" in str(raised))
    job_id = failing(error, middleware, is_async=is_async)
    station.drain()
    assert station.state(job_id) is state
    if state is State.FAILED:
        failure = station.job(job_id).failure
        assert failure is not None
        assert failure.type.rpartition(".")[2] == type(error).__name__


def test_what_fail_on_exception_cannot_judge_is_refused() -> None:
    wrong: Any = int
    for which in ((), (wrong,), (KeyError, wrong)):
        with pytest.raises(ConfigError, match="FailOnException was given"):
            FailOnException(*which)


async def over_one(job: RunningJob) -> bool:
    await asyncio.sleep(0)
    return bool(job.fields["number"] > 1)


@pytest.mark.parametrize(
    ("middleware", "runs"),
    [(Skip.when(over_one), True), (Skip.unless(over_one), False), (Release.when(over_one, "1h"), True)],
)
def test_an_async_condition_is_awaited_around_an_async_handler(
    station: Station, middleware: Middleware, runs: bool
) -> None:
    marks: Marks = station.tape()
    declare("async class", marks, [middleware])()
    station.drain()
    assert marks == (["run"] if runs else [])


@pytest.mark.parametrize("middleware", [Skip.when(over_one), Release.unless(over_one, "1h")])
def test_an_async_condition_around_a_plain_handler_is_refused(station: Station, middleware: Middleware) -> None:
    marks: Marks = station.tape()
    job_id = declare("function", marks, [middleware], tries=1)()
    station.drain()
    failure = station.job(job_id).failure
    assert failure is not None
    assert "has an async condition, and the handler is plain" in failure.message
    assert marks == []


def test_an_async_function_judges_no_error() -> None:
    async def judge(error: Exception) -> bool:
        return True

    for option in ("when", "discard_when", "fail_when"):
        with pytest.raises(ConfigError, match="ThrottlesExceptions was given the async function"):
            ThrottlesExceptions(3, "1m", **{option: judge})  # type: ignore[arg-type]
    wrong: Any = judge
    with pytest.raises(ConfigError, match="FailOnException was given the async function"):
        FailOnException(wrong)
