"""Who runs everything on an embedded server: each `delayq up`. So that `delayq down` can let them finish first.

    up.lock     a byte for each `up`, locked for as long as it lives; and one byte that a `down` locks while it waits

The kernel frees a lock with its process and tells whose it is, so nothing here can be stale. These are locks of a
process: its forked children have no part in them, unlike in those of `server_lock`.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from itertools import count
from typing import TYPE_CHECKING, Final, Self

from delayq.redis.server_process import signal_process

if TYPE_CHECKING:
    import signal
    from pathlib import Path
    from types import TracebackType

_END: Final = 1 << 20
"""The byte of those who wait for the end. Before it there is one for each that attends."""
# struct flock, in the order of the fields below.
_LAYOUT: Final = "qqihh" if sys.platform == "darwin" else "hhqqi4x"


class Attendance:
    """One open lock file. To be opened once in a process: closing it anywhere frees the locks of the whole process."""

    def __init__(self, path: Path) -> None:
        """Opens `path`, made if needed. Raises OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def attend(self) -> None:
        """Be seen by `others`, until this is closed."""
        for place in count():
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            except (BlockingIOError, PermissionError):  # taken: systems differ in how they say so
                continue
            return

    def others(self) -> list[int]:
        """The processes that attend, but for this one; 0 for one that has no number here: in another container."""
        found, start = [], 0
        while (held := self._holder(start, _END - start)) is not None:
            at, pid = held
            found.append(pid)
            start = at + 1
        return found

    def ask_to_leave(self, pid: int, number: signal.Signals) -> None:
        """Send one that attends a signal; nothing when it has left meanwhile. Raises PermissionError."""
        signal_process(pid, number, lambda: pid in self.others())

    def await_end(self) -> None:
        """Let those who leave know why."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, _END)

    def end_awaited(self) -> bool:
        """Whether somebody waits for all to leave."""
        return self._holder(_END, 1) is not None

    def _holder(self, start: int, length: int) -> tuple[int, int] | None:
        """Where the first lock of another process in this range begins, and whose it is."""
        asked = {"type": fcntl.F_WRLCK, "whence": os.SEEK_SET, "start": start, "length": length, "pid": 0}
        order = ("start", "length", "pid", "type", "whence") if sys.platform == "darwin" else tuple(asked)
        packed = struct.pack(_LAYOUT, *(asked[name] for name in order))
        told = struct.unpack(_LAYOUT, fcntl.fcntl(self._descriptor, fcntl.F_GETLK, packed))
        found = dict(zip(order, told, strict=True))
        return None if found["type"] == fcntl.F_UNLCK else (found["start"], found["pid"])
