"""`RateLimited` and `ThrottlesExceptions`: on workers, and by the virtual clock."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from delayq import (
    Discard,
    Fail,
    RateLimit,
    RateLimited,
    Retry,
    RunningJob,
    ThrottlesExceptions,
    dispatch,
    job,
    use_limit,
)
from delayq.core.errors import ConfigError, InvalidDuration
from delayq.core.interrupts import JobTimedOut
from delayq.core.states import State
from delayq.jobs.middleware.rates import Definition
from delayq.testing.attempted import Attempted
from delayq.testing.travel import Travel, travelling
from tests.support.around import KINDS, Marks, declare
from tests.support.station import Station

pytestmark = pytest.mark.usefixtures("manager")


@pytest.fixture
def travel(station: Station, manager: object) -> object:
    with travelling() as travel:
        yield travel


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_over_the_rate_is_snoozed_until_its_turn(station: Station, kind: str) -> None:
    marks: Marks = station.tape()
    use_limit("sms", RateLimit.per_hour(1))
    act = declare(kind, marks, [RateLimited("sms")], tries=1)
    ids = [act() for _ in range(3)]
    station.drain()
    ends = {job_id: station.ends(job_id) for job_id in ids}  # async ones ask side by side, in any order
    assert sorted(ends.values()) == [["done"], ["snoozed"], ["snoozed"]]
    jobs = [station.job(job_id) for job_id, how in ends.items() if how == ["snoozed"]]
    assert [(job.state, job.attempts) for job in jobs] == [(State.SCHEDULED, 0)] * 2
    first, second = (job.due_ms or 0 for job in jobs)
    assert abs(second - first) >= 3_500_000, "each has a turn of its own"
    [view] = station.client.limits.all()
    assert (view.name, view.turns, view.rates[0].used) == ("sms", 2, 1)


def started(attempts: Sequence[Attempted]) -> list[int]:
    """When jobs ran to their end."""
    return [attempt.at_ms for attempt in attempts if attempt.ended == "done"]


@pytest.mark.parametrize(
    "rate", [RateLimit.window(5, "1m"), RateLimit.sliding(5, "1m"), RateLimit.bucket(5, "1m", burst=2)], ids=str
)
@pytest.mark.parametrize("is_async", [False, True])
def test_sixty_jobs_and_five_a_minute(travel: Travel, rate: RateLimit, is_async: bool) -> None:
    if is_async:

        @job("act", middleware=[RateLimited("sms", rate)], tries=1)
        async def act() -> None:
            """Nothing."""
    else:

        @job("act", middleware=[RateLimited("sms", rate)], tries=1)
        def act() -> None:
            """Nothing."""

    for _ in range(60):
        dispatch("act")
    attempts = travel("13m")
    at = started(attempts)
    assert len(at) == 60
    assert {attempt.ended for attempt in attempts} == {"done", "snoozed"}
    assert {attempt.attempt for attempt in attempts} == {1}
    assert len(attempts) <= 3 * 60, "they do not come again and again"
    most = 10 if rate.kind == "window" else 7 if rate.kind == "bucket" else 5
    assert max(sum(begin <= other < begin + 60_000 for other in at) for begin in at) <= most


def test_a_definition_may_be_a_function_of_the_job(travel: Travel) -> None:
    def by_account(job: RunningJob) -> list[RateLimit] | None:
        if job.fields["account"] == "ours":
            return None
        return [RateLimit.per_minute(10).by("all"), RateLimit.per_minute(2).by(job.fields["account"])]

    @job("act", middleware=[RateLimited("sms")])
    def act(account: str) -> None:
        """Nothing."""

    use_limit("sms", by_account)
    for account in ("a", "b", "ours"):
        for n in range(4):
            dispatch("act", {"account": account}, id=f"{account}{n}")
    done = [attempt.id for attempt in travel("1s") if attempt.ended == "done"]
    assert sorted(done) == ["a0", "a1", "b0", "b1", "ours0", "ours1", "ours2", "ours3"]


def test_release_after_and_drop(travel: Travel) -> None:
    @job("late", middleware=[RateLimited("one", RateLimit.per_minute(1), release_after="10m")])
    def late() -> None:
        """Nothing."""

    @job("dropped", middleware=[RateLimited("two", RateLimit.per_minute(1), drop=True)])
    def dropped() -> str:
        return "ran"

    for name in ("late", "late", "dropped", "dropped"):
        dispatch(name)
    first = travel("0s")
    assert [attempt.ended for attempt in first if attempt.name == "late"] == ["done", "snoozed"]
    assert [attempt.result for attempt in first if attempt.name == "dropped"] == ["ran", None]
    assert started(travel("9m")) == []
    assert len(started(travel("1m"))) == 1


@pytest.mark.parametrize(
    ("definition", "wrong"),
    [("often", "defined as str"), ([1], "defined as list"), ([RateLimit.per_minute(1)] * 21, "at most 20")],
)
def test_what_is_no_definition_is_refused_where_it_stands(definition: Definition, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        use_limit("sms", definition)
    with pytest.raises(ConfigError, match=wrong):
        RateLimited("sms", definition)


def test_an_undefined_limit_is_told_in_one_sentence(travel: Travel) -> None:
    declare("function", [], [RateLimited("nobody")], tries=1)()
    [attempt] = travel("0s")
    assert isinstance(attempt.error, ConfigError)
    assert "No rate limit 'nobody' is defined" in str(attempt.error)


def test_rates_that_cannot_be_counted_are_refused() -> None:
    for most in (0, -1, True, 1_000_001):
        with pytest.raises(ConfigError, match="most"):
            RateLimit.per_minute(most)
    with pytest.raises(ConfigError, match="no time"):
        RateLimit.sliding(1, "0s")
    with pytest.raises(InvalidDuration):
        RateLimit.window(1, "often")
    with pytest.raises(ConfigError, match="burst"):
        RateLimit.bucket(1, "1s", burst=0)


# -- circuits --------------------------------------------------------------------------------------------------------


def bank(errors: dict[str, BaseException], breaker: ThrottlesExceptions, *, is_async: bool) -> None:
    """A job that raises what is in `errors` for its id."""

    def call(who: str) -> str:
        if who in errors:
            raise errors[who]
        return "paid"

    async def acall(who: str) -> str:
        return call(who)

    job("pay", middleware=[breaker], tries=1)(acall if is_async else call)


def ends(attempts: Sequence[Attempted]) -> dict[str, str]:
    return {attempt.id: attempt.ended for attempt in attempts}


def pay(*ids: str) -> None:
    for one in ids:
        dispatch("pay", {"who": one}, id=one)


@pytest.mark.parametrize("is_async", [False, True])
def test_failures_open_the_circuit_and_a_try_closes_it(travel: Travel, is_async: bool) -> None:
    errors: dict[str, BaseException] = {word: OSError("no answer") for word in ("a", "b")}
    bank(errors, ThrottlesExceptions(2, "10m"), is_async=is_async)
    pay("a", "b", "c")
    assert ends(travel("0s")) == {"a": "failed", "b": "failed", "c": "snoozed"}
    pay("d")
    travel("9m")
    [view] = travel.client.limits.all()
    assert (view.name, view.circuits[0].state) == ("throttle:pay", "open")
    later = travel("30m")
    assert sorted(attempt.id for attempt in later if attempt.ended == "done") == ["c", "d"]
    assert [view.circuits for view in travel.client.limits.all()] == [()]


@pytest.mark.parametrize(
    ("options", "error", "ended", "counted"),
    [
        ({}, ValueError("x"), "failed", 1),
        ({"when": OSError}, ValueError("x"), "failed", 0),
        ({"when": lambda error: "x" in str(error)}, ValueError("x"), "failed", 1),
        ({"discard_when": ValueError}, ValueError("x"), "discarded", 0),
        ({"fail_when": (KeyError, ValueError)}, ValueError("x"), "failed", 0),
        ({"backoff": "1h"}, ValueError("x"), "released", 1),
        ({}, Retry("1h"), "released", 0),
        ({}, Fail("x"), "failed", 0),
        ({}, Discard(), "discarded", 0),
    ],
    ids=["all", "other", "chosen", "discard", "fail", "backoff", "retry", "fail signal", "discard signal"],
)
def test_what_counts_and_what_becomes_of_it(
    travel: Travel, options: dict[str, object], error: Exception, ended: str, counted: int
) -> None:
    breaker = ThrottlesExceptions(5, "10m", **options)  # type: ignore[arg-type]

    @job("pay", middleware=[breaker], tries=3 if ended == "released" else 1)
    def call() -> None:
        raise error

    dispatch("pay")
    [attempt] = travel("0s")
    assert attempt.ended == ended
    views = [circuit for view in travel.client.limits.all() for circuit in view.circuits]
    assert [circuit.failures for circuit in views] == ([counted] if counted else [])


def test_keys_fail_apart(travel: Travel) -> None:
    bank({"a": OSError()}, ThrottlesExceptions(1, "10m", key=lambda job: job.fields["who"]), is_async=False)
    pay("a", "b")
    assert ends(travel("0s")) == {"a": "failed", "b": "done"}


def test_a_timeout_is_a_failure_of_what_hangs(station: Station) -> None:
    verdict = ThrottlesExceptions(1)._verdict(JobTimedOut())
    assert verdict == "failed"


def test_a_breaker_is_told_only_what_it_knows() -> None:
    with pytest.raises(TypeError, match="does not know by"):
        ThrottlesExceptions(3, "1m", by="x")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="0 failures"):
        ThrottlesExceptions(0)
