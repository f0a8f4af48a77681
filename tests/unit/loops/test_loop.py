"""The loop that all roles share: it goes on whatever happens, says so, and stops soon when asked."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import pytest

from delayq.core.errors import BackendUnavailable, ConfigError
from delayq.loops.log_limit import LogLimit
from delayq.loops.loop import LONGEST_SLEEP_S, Loop
from delayq.loops.pauses import Pauses
from delayq.loops.troubles import Troubles
from tests.support.fakes import Clock
from tests.support.waiting import wait_until


class Role:
    """A role that does what the test says, step by step, and then nothing."""

    name = "test-role"

    def __init__(self, *steps: Callable[[], float]) -> None:
        self.steps = list(steps)
        self.turns = 0
        self.slept: list[float] = []
        self.closed = False

    def run_once(self) -> float:
        self.turns += 1
        return self.steps.pop(0)() if self.steps else 0.01

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        time.sleep(min(seconds, 0.005))

    def close(self) -> None:
        self.closed = True


def failing(error: Exception) -> Callable[[], float]:
    def step() -> float:
        raise error

    return step


@pytest.mark.parametrize(
    "error", [BackendUnavailable("away"), ConfigError("no right"), ZeroDivisionError("a bug of ours")], ids=repr
)
def test_no_error_ends_a_loop_and_none_is_silent(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    role = Role(failing(error), failing(error))
    loop = Loop(role)
    loop.start()
    wait_until(lambda: role.turns > 4, what="the loop goes on")
    loop.stop()
    assert str(error) in caplog.text
    assert "works again after 2 failed tries" in caplog.text
    assert loop.last_success > 0
    assert role.closed


def test_an_error_nobody_expected_comes_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    role = Role(failing(ZeroDivisionError("a bug of ours")))
    loop = Loop(role)
    loop.start()
    wait_until(lambda: role.turns > 1, what="the loop goes on")
    loop.stop()
    [record] = [record for record in caplog.records if record.exc_info]
    assert record.levelno == logging.ERROR
    assert "ZeroDivisionError" in record.getMessage()


def test_a_sleep_that_fails_does_not_end_a_loop() -> None:
    role = Role()
    calls: list[float] = []

    def sleep(seconds: float) -> None:
        calls.append(seconds)
        if len(calls) == 1:
            raise ConfigError("no right to SUBSCRIBE")

    role.sleep = sleep  # type: ignore[method-assign]  # this one is the role's only job
    loop = Loop(role)
    loop.start()
    wait_until(lambda: len(calls) > 2, what="the loop goes on")
    loop.stop()


def test_a_long_sleep_is_cut_into_pieces() -> None:
    role = Role(lambda: 3_600.0)
    loop = Loop(role)
    loop.start()
    wait_until(lambda: role.turns > 1, what="the second look")
    loop.stop()
    assert role.slept[0] == LONGEST_SLEEP_S


def test_a_loop_that_was_stopped_does_nothing() -> None:
    role = Role()
    loop = Loop(role)
    loop.ask_to_stop()
    loop.run()
    assert role.turns == 0
    assert role.closed


# -- its parts -------------------------------------------------------------------------------------------------------


def test_pauses_grow_to_two_seconds_and_start_over() -> None:
    pauses = Pauses()
    assert [pauses.next_s() for _ in range(8)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    for _ in range(5_000):
        assert pauses.next_s() == 2.0
    pauses.reset()
    assert (pauses.failures, pauses.next_s()) == (0, 0.05)


def test_of_one_kind_the_first_line_is_written_and_then_one_every_five_seconds() -> None:
    clock = Clock()
    limit = LogLimit(5.0, clock)
    written = []
    for _ in range(300):  # five minutes, a failure each second
        written.append(limit.may_log("away"))
        clock.now += 1.0
    assert written[:6] == [1, 0, 0, 0, 0, 5]
    assert sum(1 for count in written if count) == 60
    assert limit.may_log("another kind") == 1


def test_places_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    troubles = Troubles(logging.getLogger("delayq.test"))
    for _ in range(3):
        troubles.tell(BackendUnavailable("away"), "queue a")
        troubles.tell(BackendUnavailable("away"), "queue b")
    assert [record.getMessage() for record in caplog.records] == ["queue a: away", "queue b: away"]


def test_an_outage_is_a_warning_and_a_mistake_an_error(caplog: pytest.LogCaptureFixture) -> None:
    troubles = Troubles(logging.getLogger("delayq.test"))
    troubles.tell(BackendUnavailable("away"))
    troubles.tell(ConfigError("wrong password"))
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


def test_what_was_left_out_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    troubles = Troubles(logging.getLogger("delayq.test"), LogLimit(5.0, clock))
    for _ in range(4):
        troubles.tell(BackendUnavailable("away"))
    clock.now += 5
    troubles.tell(BackendUnavailable("away"))
    assert caplog.records[-1].getMessage() == "away (and 3 more like it)"
