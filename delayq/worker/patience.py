"""Waiting for a backend that is not there yet, at a worker's start."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import tenacity

from delayq.core.errors import BackendError, BackendUnavailable

T = TypeVar("T")


def wait_for_backend(connect: Callable[[], T], stop: threading.Event, tell: Callable[[BackendError], None]) -> T | None:
    """Call `connect` until it works; `tell` hears of every failure. None when `stop` was set meanwhile.

    Only `BackendUnavailable` is waited for; a wrong password or a wrong address will not mend itself.
    """

    def report(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, BackendError):
            tell(error)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(BackendUnavailable),
        stop=tenacity.stop_when_event_set(stop),
        wait=tenacity.wait_none(),  # `tell` does the waiting, so that a stop ends it
        before_sleep=report,
        reraise=True,
    )
    try:
        return retrying(connect)
    except BackendUnavailable:
        return None
