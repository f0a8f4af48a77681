"""Repeated errors in the log: one line in 5 s, with a traceback only if the error is unexpected."""

import logging

import pytest

from delayq.core.errors import BackendUnavailable, ConfigError
from delayq.core.outages import Outages, RefusedLogins
from tests.support.fakes import FakeClock


@pytest.mark.parametrize(
    ("error", "is_traced"),
    [(BackendUnavailable("away"), False), (ConfigError("wrong password"), False), (ValueError("odd"), True)],
)
def test_only_an_unexpected_error_has_a_traceback(
    caplog: pytest.LogCaptureFixture, error: Exception, is_traced: bool
) -> None:
    outages = Outages(clock=lambda: 1.0)
    with caplog.at_level(logging.INFO):
        outages.tell("the step failed", error)
        outages.tell("the step failed", error)
        outages.is_over("the step failed")
    assert [bool(record.exc_info) for record in caplog.records] == [is_traced, False]
    assert caplog.messages == [f"the step failed: {error}", "this error has ended: the step failed"]


@pytest.mark.parametrize(("pause", "is_over"), [(1.0, True), (11.0, False)])
def test_a_process_gives_up_only_after_a_minute_in_which_its_login_was_refused_again_and_again(
    pause: float, is_over: bool
) -> None:
    clock = FakeClock()
    logins = RefusedLogins(clock=clock)
    answers = []
    for _ in range(61):
        answers.append(logins.refused())
        clock.now += pause
    assert answers[:-1] == [False] * 60
    assert answers[-1] is is_over
