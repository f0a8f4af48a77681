"""The wall clock of this process, as `clock.time()`. The helpers for tests replace it."""

import time as _system
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_given: Final[list[Callable[[], float]]] = []
"""The clock of a test. It is in a list, because freezegun replaces clocks that are attributes of a module."""


def time() -> float:
    """Return epoch seconds, by the clock of the test if there is one."""
    return _given[-1]() if _given else _system.time()


def system_time() -> float:
    """Return epoch seconds by the clock of the system, which a library for tests may have frozen."""
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
        _given.remove(clock)
