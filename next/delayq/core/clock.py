"""The wall clock of this process, as `clock.time()`. The helpers for tests replace it.

`time` is a function that returns epoch seconds. Read it as an attribute of this module in each call. `is_given` is True
while a test gives the time. The clock of the server is then not asked.
"""

import time as _system
from collections.abc import Callable, Iterator
from contextlib import contextmanager

time: Callable[[], float] = _system.time
is_given = False


@contextmanager
def given(clock: Callable[[], float]) -> Iterator[None]:
    """Use another clock inside the `with` block, in all threads of this process."""
    global time, is_given
    time, is_given = clock, True
    try:
        yield
    finally:
        time, is_given = _system.time, False
