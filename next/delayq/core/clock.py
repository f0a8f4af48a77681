"""The wall clock of this process, as `clock.time()`. The helpers for tests replace it.

`time` is a function that returns epoch seconds. Always call it as `clock.time()`, because `given` replaces the
attribute of this module. `is_given` is True while a test sets the time. Clients then do not read the clock of the
server.
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
