"""Wait for a fact, never for a time."""

import time
from collections.abc import Callable

PATIENCE = 20.0


def wait_until(is_so: Callable[[], object], what: str = "what was waited for", *, patience: float = PATIENCE) -> None:
    """Wait until something is so, and fail when it is not after a long time."""
    deadline = time.monotonic() + patience
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {patience:g} s")
        time.sleep(0.01)
