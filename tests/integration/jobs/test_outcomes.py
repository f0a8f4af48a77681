"""What becomes of a job, by what its class returned, raised or said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from delayq import Discard, Fail, Job, JobContext, Retry, Snooze
from delayq.core.errors import DelayqError
from delayq.core.states import State
from tests.support.station import Station
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("manager")


def acting(station: Station, act: Callable[[Any, JobContext], Any], **options: Any) -> type[Any]:
    """A job class whose `handle` does this, and which writes down what it heard of its failure."""

    class Acting(Job, **{"name": "act", **options}):
        text: str = "-"
        runs: ClassVar[Any] = station.tape()
        heard: ClassVar[Any] = station.tape()

        def handle(self, context: JobContext) -> Any:
            self.runs.append(context.attempt)
            return act(self, context)

        def failed(self, error: BaseException) -> None:
            self.heard.append((self.text, type(error).__name__, str(error)))

    return Acting


def raising(error: BaseException) -> Callable[[Any, JobContext], Any]:
    def act(job: Any, context: JobContext) -> None:
        raise error

    return act


def saying(word: str, *args: Any) -> Callable[[Any, JobContext], Any]:
    def act(job: Any, context: JobContext) -> None:
        getattr(job, word)(*args)

    return act


@pytest.mark.parametrize("act", [raising(Snooze("1h")), raising(Retry("1h")), saying("release", "1h")])
def test_put_back(station: Station, act: Any) -> None:
    kind = acting(station, act)
    ref = kind().dispatch()
    station.drain()
    info = station.job(ref.id)
    assert info.state is State.SCHEDULED
    snoozed = station.ends(ref.id) == ["snoozed"]
    assert info.attempts == (0 if snoozed else 1)
    assert info.envelope is not None
    assert info.envelope.exceptions == 0
    assert kind.heard == []


@pytest.mark.parametrize("act", [raising(Fail("no stock")), saying("fail", "no stock")])
def test_failed_for_good_with_tries_left(station: Station, act: Any) -> None:
    kind = acting(station, act, tries=5)
    ref = kind(text="42").dispatch()
    station.drain()
    info = station.job(ref.id)
    assert (info.state, kind.runs) == (State.FAILED, [1])
    assert info.failure is not None
    assert (info.failure.type.rpartition(".")[2], info.failure.message) == ("Fail", "no stock")
    assert kind.heard == [("42", "Fail", "no stock")]


def test_an_exception_given_to_fail_is_the_failure(station: Station) -> None:
    kind = acting(station, saying("fail", KeyError("sku")), tries=5)
    ref = kind().dispatch()
    station.drain()
    failure = station.job(ref.id).failure
    assert failure is not None
    assert failure.type.rpartition(".")[2] == "KeyError"
    assert kind.heard == [("-", "KeyError", "'sku'")]


@pytest.mark.parametrize("act", [raising(Discard()), saying("delete")])
def test_forgotten(station: Station, act: Any) -> None:
    kind = acting(station, act, retention="1h")
    ref = kind().dispatch()
    station.drain()
    assert station.state(ref.id) is State.ABSENT
    assert kind.heard == []


def test_an_error_goes_before_a_release(station: Station) -> None:
    def act(job: Any, context: JobContext) -> None:
        job.release("1h")
        raise ValueError("after all")

    ref = acting(station, act, tries=1)().dispatch()
    station.drain()
    failure = station.job(ref.id).failure
    assert failure is not None
    assert failure.message == "after all"


@pytest.mark.parametrize("first", ["fail", "delete"])
def test_nothing_takes_back_a_fail_or_a_delete(station: Station, first: str) -> None:
    def act(job: Any, context: JobContext) -> None:
        getattr(job, first)()
        job.release("1h")
        raise ValueError("after all")

    ref = acting(station, act, tries=5)().dispatch()
    station.drain()
    assert station.state(ref.id) is (State.FAILED if first == "fail" else State.ABSENT)


def test_failed_runs_once_on_a_fresh_instance_after_the_last_attempt(station: Station) -> None:
    def act(job: Any, context: JobContext) -> None:
        job.text = "changed"
        raise ValueError(str(context.attempt))

    kind = acting(station, act, tries=3, backoff="0s")
    ref = kind(text="as sent").dispatch()
    with station.working(mover=True):
        station.until(ref.id, State.FAILED)
    assert kind.runs == [1, 2, 3]
    assert kind.heard == [("as sent", "ValueError", "3")]


def test_a_failed_hook_that_raises_harms_nobody(station: Station) -> None:
    class Sad(Job, name="sad", tries=1):
        def handle(self) -> None:
            raise ValueError("first")

        async def failed(self, error: BaseException) -> None:
            raise SystemExit("second")

    ref = Sad().dispatch()
    station.drain()
    failure = station.job(ref.id).failure
    assert failure is not None
    assert failure.message == "first"
    assert "failed hook raised" in station.said()


def test_an_async_job_with_an_async_hook(station: Station) -> None:
    heard = station.tape()

    class Away(Job, name="away", tries=1):
        async def handle(self) -> None:
            self.fail("gone")

        async def failed(self, error: BaseException) -> None:
            heard.append(str(error))

    Away().dispatch()
    station.drain()
    assert heard == ["gone"]


def test_attempts_exceptions_and_snoozes_are_counted_apart(station: Station) -> None:
    def act(job: Any, context: JobContext) -> None:
        steps = [Snooze("0s"), ValueError("one"), Retry("0s"), ValueError("two")]
        step = steps[len(seen)]
        seen.append((context.attempt, job.attempts()))
        raise step

    seen = station.tape()
    ref = acting(station, act, tries=10, backoff="0s", max_exceptions=2)().dispatch()
    with station.working(mover=True):
        station.until(ref.id, State.FAILED)
    assert seen == [(1, 1), (1, 1), (2, 2), (3, 3)]
    envelope = station.job(ref.id).envelope
    assert envelope is not None
    assert (envelope.attempts, envelope.exceptions) == (3, 2)


def test_retry_until_goes_over_tries(station: Station) -> None:
    def act(job: Any, context: JobContext) -> None:
        if context.attempt < 4:
            raise ValueError("again")

    kind = acting(station, act, tries=1, backoff="0s")
    ref = kind().dispatch(retry_until="1h")
    with station.working(mover=True):
        station.until_gone([ref.id])
    assert (kind.runs, kind.heard) == ([1, 2, 3, 4], [])


def test_max_exceptions_go_over_retry_until(station: Station) -> None:
    kind = acting(station, raising(ValueError("again")), backoff="0s", max_exceptions=2)
    ref = kind().dispatch(retry_until="1h")
    with station.working(mover=True):
        station.until(ref.id, State.FAILED)
    assert kind.runs == [1, 2]


def test_a_job_past_its_deadline_does_not_start_and_hears_of_it(station: Station) -> None:
    kind = acting(station, raising(ValueError("never")))
    ref = kind().dispatch(deadline="1ms")
    wait_until(lambda: _now(station) > (station.job(ref.id).due_ms or 0) + 50, what="the deadline passes")
    station.drain()
    assert kind.runs == []
    assert [name for _, name, _ in kind.heard] == ["DeadlinePassed"]


def _now(station: Station) -> int:
    seconds, micros = station.connector.commands().time()
    return int(seconds) * 1000 + int(micros) // 1000


def test_retry_gives_a_job_past_its_limit_another_chance(station: Station) -> None:
    kind = acting(station, raising(ValueError("again")), tries=1, backoff="20ms")
    ref = kind().dispatch(retry_until="100ms")
    with station.working(mover=True):
        station.until(ref.id, State.FAILED)
    before = len(kind.runs)
    station.client.retry(ref.id)
    with station.working(mover=True):
        wait_until(lambda: len(kind.heard) == 2, what="it is tried again, and fails again")
    assert len(kind.runs) == before + 1


def test_there_is_a_context_only_while_it_is_handled(station: Station) -> None:
    seen = station.tape()
    kind = acting(station, lambda job, context: seen.append(job.context.id))
    ref = kind().dispatch()
    station.drain()
    assert seen == [ref.id]
    assert kind().attempts() == 1
    with pytest.raises(DelayqError, match="not being handled"):
        _ = kind().context
