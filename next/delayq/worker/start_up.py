"""Waits for Redis at the start of workers and movers, because services start in any order."""

import math
import time
from collections.abc import Callable
from typing import Final, TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    wait_random_exponential,
)

from delayq.core.errors import BackendUnavailable, LoginRefused, OutcomeUnknown
from delayq.core.outages import Outages

WAITING: Final = "waiting for Redis"
PAUSES: Final = wait_random_exponential(multiplier=0.2, max=5.0)

LOOK_EVERY: Final = 0.1
"""Interval between two calls of `is_ending` during a pause, in seconds."""

T = TypeVar("T")


def when_reachable(
    call: Callable[[], T],
    *,
    retry_timeout: float | None = None,
    waits_for_login: bool = False,
    is_ending: Callable[[], bool] = lambda: False,
) -> T:
    """Repeat a call until Redis answers, and return the result of the call. Log the outage meanwhile.

    `retry_timeout`: if the call still fails after this many seconds, its error (BackendUnavailable or OutcomeUnknown)
    is raised; 0 = make the call only once; None = wait without end. `waits_for_login`: True = also wait while Redis
    refuses the login, as a process of a running worker does; False = raise LoginRefused at once.
    `is_ending`: when it returns True, a pause ends early, and the next error of the call is raised.
    """
    retried: tuple[type[Exception], ...] = (BackendUnavailable, OutcomeUnknown)
    if waits_for_login:
        retried += (LoginRefused,)

    outages = Outages()

    def log_failure(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, Exception):
            outages.tell(WAITING, error)

    def pause(state: RetryCallState) -> float:
        passed = state.seconds_since_start or 0.0
        return min(PAUSES(state), math.inf if retry_timeout is None else max(retry_timeout - passed, 0.0))

    def is_last(state: RetryCallState) -> bool:
        return is_ending() or (retry_timeout is not None and (state.seconds_since_start or 0.0) >= retry_timeout)

    def sleep(seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not is_ending():
            time.sleep(min(left, LOOK_EVERY))

    retrying = Retrying(
        retry=retry_if_exception_type(retried),
        wait=pause,
        stop=is_last,
        sleep=sleep,
        before_sleep=log_failure,
        reraise=True,
    )
    result = retrying(call)
    outages.is_over(WAITING)
    return result
