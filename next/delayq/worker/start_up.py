"""What a worker and a mover do before they begin."""

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from delayq.core.errors import BackendUnavailable, OutcomeUnknown

logger: Final = logging.getLogger("delayq.worker")

T = TypeVar("T")


def when_reachable(call: Callable[[], T]) -> T:
    """Return the result of a call to Redis as soon as Redis can be reached, and log meanwhile that it cannot."""

    def tell(state: RetryCallState) -> None:
        logger.warning("waiting for Redis: %s", state.outcome.exception() if state.outcome else "")

    retrying = Retrying(
        retry=retry_if_exception_type((BackendUnavailable, OutcomeUnknown)),
        wait=wait_random_exponential(multiplier=0.2, max=5.0),
        before_sleep=tell,
    )
    return retrying(call)
