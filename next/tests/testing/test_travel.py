"""`travel` runs jobs at their time, with the real scripts, on a private server."""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from pydantic import SecretStr

from delayq import (
    AsyncDelayQ,
    Concurrency,
    DelayQ,
    Discard,
    FoundElsewhere,
    InvalidInput,
    Job,
    JobContext,
    Manager,
    RateLimit,
    RateLimited,
    Settings,
    Snooze,
    Unique,
    adispatch,
    batch,
    chain,
    current_manager,
    dispatch,
    find_batch,
    job,
)
from delayq.testing import Travel

NOWHERE = "redis://127.0.0.1:1/0"
seen: list[Any] = []


class Close(Job, name="kit.travel.close", queue="orders", tries=3, backoff=["10s", "1m"]):
    order_id: int
    fails: int = 0

    def handle(self, context: JobContext) -> str:
        seen.append(("close", self.order_id, context.attempt))
        if context.attempt <= self.fails:
            raise ValueError("not yet")
        return "closed"

    def failed(self, error: BaseException) -> None:
        seen.append(("failed", str(error)))


@job("kit.travel.step")
def step(n: int) -> None:
    seen.append(n)


@job("kit.travel.async")
async def in_loop(n: int) -> int:
    seen.append(n)
    await adispatch("kit.travel.step", {"n": n + 1}, delay="1m")
    return n


@job("kit.travel.limited", middleware=[RateLimited("kit.travel", RateLimit.per_minute(1)), Concurrency("kit", 1)])
def limited(n: int) -> None:
    seen.append(n)


@pytest.fixture(autouse=True)
def nothing_seen(elsewhere: Manager) -> None:
    seen.clear()


def _words(attempts: Any, start: datetime) -> list[tuple[str, int, str]]:
    return [(one.id, int((one.at - start).total_seconds()), one.outcome) for one in attempts]


def test_a_job_runs_when_it_is_due(delayq_travel: Travel) -> None:
    start = delayq_travel.now
    ref = Close(order_id=1).dispatch(delay="15m", id="a", retention="1h")
    assert ref.due_ms == int(start.timestamp() * 1000) + 900_000
    assert delayq_travel("14m") == [] and seen == []
    (ran,) = delayq_travel("1m")
    assert (ran.id, ran.name, ran.queue, ran.attempt, ran.outcome) == ("a", "kit.travel.close", "orders", 1, "done")
    assert (ran.result, ran.error, ran.at) == ("closed", None, start + timedelta(minutes=15))
    assert delayq_travel.now == start + timedelta(minutes=15)
    assert ref.result() == "closed"


def test_retries_run_at_their_time(delayq_travel: Travel) -> None:
    start = delayq_travel.now
    Close(order_id=1, fails=1).dispatch(id="one", delay="15m")
    Close(order_id=2, fails=9).dispatch(id="all", delay="15m")
    attempts = delayq_travel("1h")
    assert sorted(_words(attempts, start)) == [
        ("all", 900, "retried"),
        ("all", 910, "retried"),
        ("all", 970, "failed"),
        ("one", 900, "retried"),
        ("one", 910, "done"),
    ]
    assert [one.at for one in attempts] == sorted(one.at for one in attempts)
    assert isinstance(attempts[-1].error, ValueError) and seen[-1] == ("failed", "not yet")
    info = Close.find("all")
    assert info is not None and info.state == "failed" and info.failed_ms == delayq_travel.now_ms() - 2_630_000
    assert current_manager().connection().client.retry("all", queue="orders").outcome == "scheduled"
    assert len(delayq_travel("0s")) == 1


def test_snoozes_and_discards(delayq_travel: Travel) -> None:
    @job("kit.travel.moody")
    def moody(context: JobContext) -> None:
        seen.append(context.attempt)
        if len(seen) == 1:
            raise Snooze("5m")
        raise Discard("old")

    start = delayq_travel.now
    moody.job().dispatch(id="m")
    assert _words(delayq_travel("5m"), start) == [("m", 0, "snoozed"), ("m", 300, "discarded")]


def test_clients_made_before_and_async_code(request: pytest.FixtureRequest) -> None:
    early, of_async = DelayQ(NOWHERE, prefix="early"), AsyncDelayQ(NOWHERE)
    travel: Travel = request.getfixturevalue("delayq_travel")
    early.schedule("kit.travel.step", {"n": 1}, delay="2m")

    async def test() -> None:
        await of_async.schedule("kit.travel.async", {"n": 5}, delay="1m")
        assert [one.outcome for one in travel("3m")] == ["done", "done", "done"]

    asyncio.run(test())
    assert sorted(seen) == [1, 5, 6]


def test_deadlines_and_times_use_the_clock_of_the_test(delayq_travel: Travel) -> None:
    client = DelayQ(settings=Settings(url=SecretStr(NOWHERE), prefix="kit", durability="fsync"))
    delayq_travel("3d")
    tomorrow = delayq_travel.now + timedelta(days=1)
    at = client.schedule("kit.travel.step", {"n": 1}, at=tomorrow, id="at")
    late = client.schedule("kit.travel.step", {"n": 2}, deadline="1h", id="late")
    info = client.get("late")
    assert info is not None and info.envelope is not None
    assert info.envelope.deadline_ms == delayq_travel.now_ms() + 3_600_000
    assert info.envelope.created_ms == delayq_travel.now_ms()
    assert late.reschedule(delay="2h").due_ms == delayq_travel.now_ms() + 7_200_000
    ended = delayq_travel.to(tomorrow)
    assert [(one.id, one.outcome) for one in ended] == [("late", "failed"), ("at", "done")]
    assert at.due_ms == delayq_travel.now_ms()


def test_a_chain_keeps_its_delays(delayq_travel: Travel) -> None:
    start = delayq_travel.now
    delayq_travel("1d")
    chain(step.job(1), step.job(2).delay("10m"), batch([step.job(3), step.job(4)]), step.job(5)).delay("1h").dispatch()
    attempts = delayq_travel("2h")
    assert [int((one.at - start).total_seconds()) - 86_400 for one in attempts] == [3600, 4200, 4200, 4200, 4200]
    assert seen[:2] == [1, 2] and sorted(seen[2:4]) == [3, 4] and seen[4:] == [5]


def test_batches_send_their_callbacks(delayq_travel: Travel) -> None:
    running = batch(
        [step.job(1), Close(order_id=1, fails=9)],
        allow_failures=True,
        before=step.job(0),
        then=step.job(10),
        catch=step.job(11),
        finally_=step.job(12),
    ).dispatch()
    delayq_travel("5m")
    assert [n for n in seen if isinstance(n, int)].count(0) == 1
    assert {11, 12} <= set(n for n in seen if isinstance(n, int))
    info = find_batch(running.id)
    assert info is not None and info.failed == 1 and info.finished_ms is not None


def test_limits_let_jobs_wait(delayq_travel: Travel) -> None:
    for n in range(3):
        limited.job(n).dispatch()
    attempts = delayq_travel("5m")
    assert sorted(seen) == [0, 1, 2]
    times = [one.at for one in attempts if one.outcome == "done"]
    assert all(after - before >= timedelta(seconds=59) for before, after in pairwise(times))
    assert {one.outcome for one in attempts} == {"done", "snoozed"}


def test_unique_keys(delayq_travel: Travel) -> None:
    window = Unique(until="window", window="1h")
    first = step.job(1).dispatch(unique="key", delay="1m")
    assert step.job(2).dispatch(unique="key").id == first.id
    assert dispatch("kit.travel.step", {"n": 3}, unique=window).outcome == "created"
    delayq_travel("59m")
    assert step.job(2).dispatch(unique="key").outcome == "created"
    assert dispatch("kit.travel.step", {"n": 3}, unique=window).outcome == "kept"
    delayq_travel("1m")
    assert dispatch("kit.travel.step", {"n": 3}, unique=window).outcome == "created"


def test_a_cancelled_job_never_runs(delayq_travel: Travel) -> None:
    Close(order_id=1).dispatch(delay="15m", id="a")
    assert Close.cancel("a") == "cancelled"
    assert delayq_travel("1h") == []
    ref = Close(order_id=1).dispatch(delay="15m", id="b")
    with pytest.raises(TimeoutError):
        ref.wait("1s")
    with pytest.raises(FoundElsewhere):
        current_manager().connection().client.get("b")


def test_a_job_that_stops_itself(delayq_travel: Travel) -> None:
    @job("kit.travel.suicidal", tries=5)
    def stops_itself(context: JobContext) -> None:
        assert current_manager().connection().client.cancel(context.id, running=True) == "running"
        raise ValueError("no")

    ref = stops_itself.job().dispatch()
    assert len(delayq_travel("1h")) == 1
    assert ref.refresh() is None


def test_bad_input(delayq_travel: Travel) -> None:
    with pytest.raises(InvalidInput, match="is before the time of the test"):
        delayq_travel.to(datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidInput):
        delayq_travel("later")


def test_a_job_that_never_ends_is_reported(delayq_travel: Travel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayq.testing.travel.MAX_ATTEMPTS", 20)

    @job("kit.travel.endless")
    def endless() -> None:
        raise Snooze("0s")

    endless.job().dispatch()
    with pytest.raises(RuntimeError, match=r"20 attempts were run, the last one of the job 'kit.travel.endless'"):
        delayq_travel("1m")


def test_errors_that_end_the_test_are_raised(delayq_travel: Travel) -> None:
    @job("kit.travel.fails_test")
    def fails_test() -> None:
        pytest.fail("the test")

    fails_test.job().dispatch()
    with pytest.raises(pytest.fail.Exception, match="the test"):
        delayq_travel("0s")


def test_nothing_is_left_behind() -> None:
    from delayq.testing import travelling

    with travelling() as travel:
        dispatch("kit.travel.step", {"n": 1})
        socket = travel._executor.where.removeprefix("unix://")
        assert os.path.exists(socket)
        travel("0s")
    assert seen == [1]
    assert not os.path.exists(os.path.dirname(socket))
