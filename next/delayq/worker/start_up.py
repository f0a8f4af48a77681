"""Waits for Redis at the start of workers and movers, because services start in any order."""

from collections.abc import Callable
from typing import Final, TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    stop_never,
    wait_random_exponential,
)

from delayq.core.errors import BackendUnavailable, LoginRefused, OutcomeUnknown
from delayq.core.outages import Outages

WAITING: Final = "waiting for Redis"

T = TypeVar("T")


def when_reachable(call: Callable[[], T], *, retry_timeout: float | None = None, waits_for_login: bool = False) -> T:
    """Repeat a call until Redis answers, and return the result of the call. Log the outage meanwhile.

    Raises BackendUnavailable or OutcomeUnknown if Redis has not answered after `retry_timeout` seconds; None = wait
    without end. Raises LoginRefused at once, unless `waits_for_login` is True, as for a process of a running worker.
    """
    retried: tuple[type[Exception], ...] = (BackendUnavailable, OutcomeUnknown)
    if waits_for_login:
        retried += (LoginRefused,)

    outages = Outages()

    def log_failure(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, Exception):
            outages.tell(WAITING, error)

    retrying = Retrying(
        retry=retry_if_exception_type(retried),
        wait=wait_random_exponential(multiplier=0.2, max=5.0),
        stop=stop_never if retry_timeout is None else stop_after_delay(retry_timeout),
        before_sleep=log_failure,
        reraise=True,
    )
    result = retrying(call)
    outages.is_over(WAITING)
    return result
