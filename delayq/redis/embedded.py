"""The embedded server: a real Redis or Valkey of this user, for when no DELAYQ_URL is set.

    a command ── ensure() ──▶ does one answer on this data directory?
                                ├─ yes ─▶ use it
                                └─ no ──▶ start it, detached; the next command finds it
    delayq up ── start_child() ──▶ the same, but it ends with this process
    delayq down ── stop()

It listens on a private unix socket and writes every change to an append-only file, flushed to disk every second.
However many commands ask at once, one server runs per data directory: `start.lock` lets one of them start it, and the
server itself holds `server.lock` until it ends. Nothing here imports a client library; a bare PING is enough.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

from delayq.core.errors import BackendUnavailable, ConfigError
from delayq.redis.attendance import Attendance
from delayq.redis.child_server import ChildServer
from delayq.redis.server_binary import ServerBinary, choose_server
from delayq.redis.server_home import ServerHome, default_data_dir, project_data_dir
from delayq.redis.server_launch import Launch
from delayq.redis.server_lock import FileLock
from delayq.redis.server_lookup import Running, find, is_held, process_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "Attendance",
    "ChildServer",
    "EmbeddedServer",
    "Running",
    "ServerBinary",
    "default_data_dir",
    "project_data_dir",
]

START_TIMEOUT_S: Final = 30.0
"""Long, because a server with much data answers only when it has read it."""
STOP_TIMEOUT_S: Final = 10.0


class EmbeddedServer:
    """The server of one data directory. Making this object touches nothing; many processes may do so at once.

    Every method raises ConfigError if the data directory cannot be used, and BackendUnavailable if a server is there
    but does not answer.
    """

    def __init__(self, data_dir: Path, *, server: Path | None = None) -> None:
        """`data_dir` is made when a server is started. `server` is the program to run; None chooses one."""
        self._home = ServerHome(data_dir.expanduser().resolve())
        self._explicit = server

    @property
    def data_dir(self) -> Path:
        return self._home.data_dir

    @property
    def log(self) -> Path:
        """Where the server's own output goes."""
        return self._home.log

    @cached_property
    def chosen(self) -> ServerBinary:
        """The program that is run when no server runs yet; `str()` of it is a line to print. Raises ConfigError."""
        return choose_server(self._explicit)

    def running(self) -> Running | None:
        """The server that runs now; None if there is none. Starts nothing."""
        with self._usable():
            return find(self._home)

    def ensure(self, *, timeout_s: float = START_TIMEOUT_S) -> Running:
        """The running server, started if need be, and ready. It survives this process.

        Raises:
            ConfigError: there is no program to run.
            BackendUnavailable: it did not start, or not within `timeout_s`; the message shows its last words.
        """
        with self._usable():
            running = find(self._home)
            if running is not None and running.is_ready:
                return running
            deadline = time.monotonic() + timeout_s
            with self._alone(deadline):
                return Launch(self._home, lambda: self.chosen, deadline).detached().running

    def start_child(self, *, timeout_s: float = START_TIMEOUT_S) -> ChildServer:
        """As `ensure`, but a server that had to be started ends with this process, on Linux also when it is killed.

        One that runs already is joined and left running. Use it in a `with`, in a thread that lives as long as the
        server should: Linux watches the thread.
        """
        with self._usable():
            deadline = time.monotonic() + timeout_s
            with self._alone(deadline):
                launched = Launch(self._home, lambda: self.chosen, deadline).as_child()
            return ChildServer(launched.running, launched.child)

    @property
    def has_run(self) -> bool:
        """Whether a server was ever started here. Never raises."""
        return self._home.exists()

    def attendance(self) -> Attendance:
        """Who runs everything on it. Use it in a `with`; makes the data directory."""
        with self._usable():
            self._home.prepare()
            return Attendance(self._home.up_lock)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """End the server, cleanly if it manages within `timeout_s`. True if there was one, whoever started it.

        Only the server's own process is ever signalled: one that merely has its old pid is left alone.
        """
        with self._usable():
            if not self._home.exists():
                return False
            with self._alone(time.monotonic() + START_TIMEOUT_S):
                return self._end(timeout_s)

    def _end(self, timeout_s: float) -> bool:
        process = process_of(self._home)
        if process is None:
            if is_held(self._home):
                raise BackendUnavailable(
                    f"A server holds {self.data_dir} but its process cannot be found from here.",
                    hint=f"If it runs in a container, stop it there; else end what has {self._home.server_lock} open.",
                )
            return False
        if not process.end(timeout_s=timeout_s):
            raise BackendUnavailable(f"The embedded server (process {process.pid}) does not end, even when killed.")
        self._home.clear()
        return True

    @contextmanager
    def _alone(self, deadline: float) -> Iterator[None]:
        """One command at a time may start or stop the server."""
        self._home.prepare()
        with FileLock(self._home.start_lock) as lock:
            if not lock.take(timeout_s=max(0.0, deadline - time.monotonic())):
                raise BackendUnavailable(
                    f"Another command is still starting or stopping the server on {self.data_dir}.",
                    hint=f"Try again; if it lasts, end the process that has {self._home.start_lock} open.",
                )
            try:
                yield
            finally:
                lock.release()

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """Turn what the file system refuses into one sentence."""
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"The data directory {self.data_dir} cannot be used: {error.strerror or error}.",
                hint="Set DELAYQ_DATA_DIR to a directory you can write to.",
            ) from error
