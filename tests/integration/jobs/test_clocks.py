"""Limits in time are judged by the clock of Redis, whatever that of the worker says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from delayq import Job, Retry
from delayq.core import names
from delayq.core.states import State
from delayq.redis.presence import server_time
from tests.support.station import Station
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("manager")

DAY_S = 86_400


@contextmanager
def wrong_by(seconds: int) -> Iterator[None]:
    """The wall clock of this process, and of what it forks, is that far ahead."""
    right, right_ns = time.time, time.time_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: right() + seconds)
        patch.setattr(time, "time_ns", lambda: right_ns() + seconds * 1_000_000_000)
        patch.setattr(names, "_ids", names._Ids())  # ids never step back: later tests' would stay ahead
        yield


def trying(station: Station) -> type[Any]:
    """A job that asks to be tried again; it writes down its attempts and what it heard of its failure."""

    class Trying(Job, name="try"):
        runs: ClassVar[Any] = station.tape()
        heard: ClassVar[Any] = station.tape()

        def handle(self) -> None:
            self.runs.append(self.attempts())
            raise Retry("1h")

        def failed(self, error: BaseException) -> None:
            self.heard.append(type(error).__name__)

    return Trying


def until_passed(station: Station, moment_ms: int) -> None:
    def now_ms() -> int:
        seconds, micros = server_time(station.connector.commands())
        return seconds * 1000 + micros // 1000

    wait_until(lambda: now_ms() > moment_ms, what="the limit has passed for Redis")


@pytest.mark.parametrize("limit", ["retry_until", "deadline"])
def test_a_clock_that_is_ahead_gives_up_nothing(station: Station, limit: str) -> None:
    kind = trying(station)
    ref = kind().dispatch(tries=2, **{limit: "1h"})
    with wrong_by(DAY_S):
        station.drain()
    assert (kind.runs, station.ends(ref.id)) == ([1], ["released"])


@pytest.mark.parametrize("limit", ["retry_until", "deadline"])
def test_a_clock_that_is_behind_starts_nothing_late(station: Station, limit: str) -> None:
    kind = trying(station)
    ref = kind().dispatch(**{limit: "1ms"})
    envelope = station.job(ref.id).envelope
    assert envelope is not None
    until_passed(station, envelope.retry_until_ms or envelope.deadline_ms or 0)
    with wrong_by(-DAY_S):
        station.drain()
    assert kind.runs == []
    assert kind.heard == ["RetryUntilPassed" if limit == "retry_until" else "DeadlinePassed"]
    assert station.state(ref.id) is State.FAILED


@pytest.mark.parametrize("seconds", [DAY_S, -DAY_S])
def test_the_clock_of_a_producer_has_no_say(station: Station, seconds: int) -> None:
    with wrong_by(seconds):
        ref = trying(station)().dispatch(delay="1h", retry_until="1h")
    info = station.job(ref.id)
    assert info.envelope is not None
    assert info.due_ms is not None
    assert info.envelope.retry_until_ms is not None
    assert abs(info.envelope.retry_until_ms - info.due_ms - 3_600_000) < 60_000
