"""What a job declares, laid over what the worker says."""

from __future__ import annotations

from delayq.core.backoff import DEFAULT, Fixed
from delayq.core.outcome import OnTimeout, Policy
from delayq.jobs.options import HandlerOptions, declare

WORKER = Policy(tries=5, backoff=DEFAULT, retention_ms=1, timeout_ms=60_000, max_exceptions=None)


def test_what_says_nothing_changes_nothing() -> None:
    assert HandlerOptions().over(WORKER) == WORKER
    assert declare("x", HandlerOptions(), {"tries": None, "queue": None}) == HandlerOptions()


def test_what_is_declared_goes_before_the_worker() -> None:
    given = {"tries": 0, "backoff": "1s", "retention": "0s", "timeout": "0s", "on_timeout": "fail", "max_exceptions": 2}
    policy = declare("x", HandlerOptions(), given).over(WORKER)
    assert policy == Policy(
        tries=0, backoff=Fixed(1000), retention_ms=0, timeout_ms=0, on_timeout=OnTimeout.FAIL, max_exceptions=2
    )


def test_what_is_given_goes_before_what_is_inherited() -> None:
    base = declare("x", HandlerOptions(), {"tries": 2, "queue": "a"})
    assert declare("x", base, {"tries": 3}) == HandlerOptions(tries=3, queue="a")
