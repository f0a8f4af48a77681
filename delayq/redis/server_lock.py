"""An exclusive lock on a file, which a process can pass on to a program it starts.

The kernel frees it when the last holder ends, however it ends. So a lock that the server itself holds says whether one
still lives on a data directory, also when its socket or its pid file is gone.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_POLL_S: Final = 0.01


class FileLock:
    """One open lock file. Closing it frees the lock, unless another process holds the descriptor too."""

    def __init__(self, path: Path) -> None:
        """Opens `path`, made if needed. Raises OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def descriptor(self) -> int:
        """To hand to `subprocess` in `pass_fds`."""
        return self._descriptor

    def take(self, *, timeout_s: float = 0.0) -> bool:
        """Try for at most `timeout_s`; True if the lock is ours now. (flock itself knows no timeout.)"""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_POLL_S)
            else:
                return True

    def is_free(self) -> bool:
        """Whether nobody holds it. Asked with a shared lock, so that those who ask do not see each other."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return True

    def release(self) -> None:
        """Free the lock now. `close` alone would leave it with a process that was forked from us meanwhile."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
