"""The wall clock of this process, as `clock.time()`. The helpers for tests replace it."""

import time as _system
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_given: Final[list[Callable[[], float]]] = []
"""The clocks that tests have set; the last one is used. They are in a list,
because freezegun replaces functions that are attributes of a module."""


def time() -> float:
    """Return epoch seconds, from the clock that a test has set, or else from the clock of the system."""
    return _given[-1]() if _given else _system.time()


def system_time() -> float:
    """Return epoch seconds from the clock of the system, which a library for tests may have frozen."""
    return _system.time()


def is_given() -> bool:
    """Return True while a test sets the time. Clients then do not read the clock of the server."""
    return bool(_given)


@contextmanager
def given(clock: Callable[[], float]) -> Iterator[None]:
    """Use another clock inside the `with` block, in all threads of this process."""
    _given.append(clock)
    try:
        yield
    finally:
        _given.pop()
