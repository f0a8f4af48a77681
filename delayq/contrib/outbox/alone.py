"""One relay at a time for an SQLite database, which cannot lock rows: a lock on a file beside it.

Two at once would do no harm, because a batch has a token; they would do everything twice.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Alone:
    """The lock; it ends with the process that holds it."""

    def __init__(self, database: str) -> None:
        self.path = Path(f"{database}-relay")
        self._fd = -1

    def take(self) -> bool:
        """Whether this relay is the one; asked as often as one likes."""
        if self._fd >= 0:
            return True
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def give_back(self) -> None:
        """Let another one be it. The file stays: removed, it could be locked twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
