"""A server that lives as long as the command that started it: for `delayq up` and the demo."""

from __future__ import annotations

import atexit
import os
import subprocess
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import TracebackType

    from delayq.redis.server_lookup import Running

_KILL_AFTER_S: Final = 10.0


class ChildServer:
    """Either our own child, or a server that ran before and is only used.

    Our own ends with `stop()`, the `with` block or the interpreter, and on Linux also when this process is killed.
    """

    def __init__(self, running: Running, child: subprocess.Popen[bytes] | None) -> None:
        self.running = running
        self._child = child
        self._owner = os.getpid()
        if child is not None:
            atexit.register(self.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def is_own(self) -> bool:
        """False if it ran before us and will run after us."""
        return self._child is not None

    def has_ended(self) -> bool:
        """Whether our own child is gone, stopped by someone else or crashed. Always False for one that is not ours."""
        return self._child is not None and self._child.poll() is not None

    @property
    def failure(self) -> str:
        """How our own child ended that did not end in order: a crash, a kill; '' for all else."""
        code = self._child.poll() if self._child is not None else None
        if not code:
            return ""
        return f"it was killed by signal {-code}" if code < 0 else f"it left with exit code {code}"

    def stop(self, timeout_s: float = _KILL_AFTER_S) -> None:
        """End our own server: TERM, `timeout_s` seconds, KILL. One that is not ours, or has ended, is left alone."""
        # A forked child of ours inherits this object and its exit handler, but not the server.
        if self._child is None or os.getpid() != self._owner:
            return
        atexit.unregister(self.stop)
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
