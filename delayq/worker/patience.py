"""Waiting for a backend that is not there yet, at the start of a process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import tenacity

from delayq.core.errors import AWAY
from delayq.loops.pauses import FIRST_S, LONGEST_S
from delayq.loops.troubles import Troubles

T = TypeVar("T")

log = logging.getLogger("delayq.worker")


def wait_for_backend(connect: Callable[[], T], stopped: Callable[[], bool], sleep: Callable[[float], None]) -> T | None:
    """Call `connect` until it works, saying why not; None once `stopped` says so. `sleep` may end early.

    Only a backend that is away is waited for; a wrong password or a wrong address will not mend itself and is raised.
    """
    troubles = Troubles(log)

    def say(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, Exception):
            troubles.tell(error, "waiting to start")

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(AWAY),
        stop=lambda state: stopped(),
        wait=tenacity.wait_exponential(multiplier=FIRST_S, max=LONGEST_S),
        sleep=sleep,
        before_sleep=say,
        reraise=True,
    )
    try:
        return retrying(connect)
    except AWAY:
        return None
