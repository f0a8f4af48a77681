"""Repeated errors in the log: one line in 5 s, with a traceback only if the error is unexpected."""

import logging

import pytest

from delayq.core.errors import BackendUnavailable, ConfigError
from delayq.core.outages import Outages


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
