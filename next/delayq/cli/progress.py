"""Prints the progress of commands that take more than 2 s."""

import time
from typing import Final

from delayq.cli.output import print_note

PROGRESS_EVERY: Final = 2.0
"""Seconds between two progress lines of a long operation."""


class Progress:
    """Prints the progress of a long operation on stderr, at most every 2 s.

    `done`: text after the number, such as 'deleted'.
    """

    def __init__(self, done: str) -> None:
        self._done = done
        self._tell_at = time.monotonic() + PROGRESS_EVERY

    def tell(self, number: int) -> None:
        """Print the number, unless the operation began or a line was printed less than 2 s ago."""
        if time.monotonic() >= self._tell_at:
            print_note(f"{number:,} {self._done} …")
            self._tell_at = time.monotonic() + PROGRESS_EVERY
