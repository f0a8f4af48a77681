"""Waits for a fact, never for a time."""

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], bool], *, patience: float = 20.0) -> None:
    """Wait until something holds; fail after `patience` seconds, which is long on purpose."""
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, f"it did not hold after {patience} s"
        time.sleep(0.01)
