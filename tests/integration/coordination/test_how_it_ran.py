"""What is kept of a job that has ended: when its last attempt was due, promoted and started, and what failed before."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.core.envelope import UNKNOWN_SINCE
from delayq.core.failure import Failure, Ran
from delayq.core.states import State
from delayq.jobs.chain import chain
from tests.support.station import QUEUE, Station
from tests.support.steps import Steps
from tests.support.waiting import wait_until

CLOCKS_MS = 2_000
pytestmark = pytest.mark.usefixtures("manager")


def in_order(ran: Ran | None, ended_ms: int | None) -> bool:
    """Whether every time is there, none before the one before it. Workers see the server's clock with a small error."""
    if ran is None or None in (ran.due_ms, ran.promoted_ms, ran.started_ms, ended_ms):
        return False
    times = [ms for ms in (ran.due_ms, ran.promoted_ms, ran.started_ms) if ms is not None]
    return times == sorted(times) and times[-1] <= (ended_ms or 0) + CLOCKS_MS


def test_what_is_kept_tells_how_it_ran(station: Station) -> None:
    steps = Steps(station)
    kept: dict[str, Any] = {"retention": "1h", "tries": 2}
    chain(steps("first", "fail first", 1, id="a", **kept), steps("second", id="b", **kept)).dispatch()
    steps("alone", "fail first", 1, id="c", **kept).dispatch()
    steps("never", "fail", id="d", **kept).dispatch()
    steps("gone", id="e").dispatch()
    station.client.schedule("unknown", id="f", tries=1, headers={UNKNOWN_SINCE: "0"})  # for more than an hour
    with station.working(mover=True):
        station.until("b", State.COMPLETED)
        station.until("c", State.COMPLETED)
        station.until("d", State.FAILED)
        station.until("f", State.FAILED)
        wait_until(lambda: station.state("e") is State.ABSENT, what="e is done")
    for job_id, failed in (("a", 1), ("b", 0), ("c", 1)):
        info = station.job(job_id)
        assert info.ended is not None, job_id
        assert in_order(info.ended.ran, (info.forget_ms or 0) - info.ended.kept_ms), job_id
        assert [(one.type, one.attempt) for one in info.ended.failures] == [("ValueError", 1)] * failed
        assert all(in_order(one.ran, one.at_ms) for one in info.ended.failures)
        assert info.failure is None, "it has not failed"
    given_up = station.job("d").failure or Failure("", "")
    assert in_order(given_up.ran, given_up.at_ms)
    assert [in_order(one.ran, one.at_ms) for one in given_up.history] == [True]
    unknown = (station.job("f").failure or Failure("", "")).ran
    assert unknown is not None
    assert (unknown.promoted_ms is not None, unknown.started_ms) == (True, None)
    left = station.connector.commands().hkeys(station.keys(QUEUE).of("errors"))
    assert sorted(left) == [b"a", b"b", b"c", b"d", b"f"]
    station.client.forget(["a", "b", "c"], queue=QUEUE)
    assert sorted(station.connector.commands().hkeys(station.keys(QUEUE).of("errors"))) == [b"d", b"f"]


def test_what_is_kept_tells_how_often_its_worker_vanished(station: Station) -> None:
    steps = Steps(station)
    steps("once", id="r", retention="1h").delay("200ms").dispatch()
    station.connector.commands().hset(station.keys(QUEUE).of("recoveries"), "r", "1")
    with station.working(mover=True):
        station.until("r", State.COMPLETED)
    assert station.job("r").recoveries == 1
    assert not station.connector.commands().exists(station.keys(QUEUE).of("recoveries"))
