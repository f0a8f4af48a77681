"""Wait for something to become true, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST_WAIT_S = 0.001
LONGEST_WAIT_S = 0.05


def wait_until(predicate: Callable[[], T], *, timeout: float = 20.0, what: str = "the condition") -> T:
    """Call `predicate` until it answers something true, and return that.

    `timeout` is in seconds. It is generous, because only a failure ever takes that long; give a shorter one for what is
    promised to come sooner. The predicate is asked once more after the deadline, so a test that was itself kept waiting
    by a busy machine does not fail for it. What the predicate raises goes to the caller.

    Raises AssertionError, naming `what` and the last answer, when the time is over.
    """
    deadline = time.monotonic() + timeout
    wait = FIRST_WAIT_S
    while True:
        late = time.monotonic() >= deadline
        answer = predicate()
        if answer:
            return answer
        if late:
            raise AssertionError(f"{what}: not within {timeout:g} s; the last answer was {answer!r}")
        time.sleep(min(wait, max(0.0, deadline - time.monotonic())))
        wait = min(wait * 2, LONGEST_WAIT_S)
