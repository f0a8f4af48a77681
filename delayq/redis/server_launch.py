"""One attempt to start a server on a data directory. The caller holds `start.lock`."""

from __future__ import annotations

import os
import select
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from delayq.core.errors import BackendUnavailable, ConfigError
from delayq.redis.server_lock import FileLock
from delayq.redis.server_lookup import Running, look, process_of, silent
from delayq.redis.server_probe import ask
from delayq.redis.server_process import ServerProcess, server_arguments, start_child, start_detached

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from delayq.redis.server_binary import ServerBinary
    from delayq.redis.server_home import ServerHome

_POLL_S: Final = 0.005
_UNREACHABLE_GRACE_S: Final = 2.0
"""How long a live server that nobody can reach may take to come up or to go down before it is replaced."""
_END_TIMEOUT_S: Final = 10.0


class Start(Protocol):
    """How to start the server: `start_child`, or `start_detached`, which has no child to give."""

    def __call__(self, arguments: list[str], *, log: Path, keep: tuple[int, ...]) -> subprocess.Popen[bytes] | None: ...


@dataclass(frozen=True, slots=True)
class Launched:
    """What came of it."""

    running: Running
    child: subprocess.Popen[bytes] | None = None
    """Set if it was started as a child; None if it is detached, or ran already."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Start `binary` on `home`, or join the server that is there by now; not later than `deadline` (monotonic, s)."""

    home: ServerHome
    binary: Callable[[], ServerBinary]
    """Asked only if a server must be started: finding one means running programs."""
    deadline: float

    def detached(self) -> Launched:
        """A server that survives this process."""
        return self._run(start_detached)

    def as_child(self) -> Launched:
        """A server that ends with this process; one that runs already is joined and keeps its own life."""
        return self._run(start_child)

    def _run(self, start: Start) -> Launched:
        with FileLock(self.home.server_lock) as lock:
            if not self._claim(lock):
                return Launched(self._await(None, since=self.home.log_size()))
            binary = self.binary()
            self._refuse_older(binary)
            socket = self.home.choose_socket()
            self._end_stray(socket)
            self.home.record_socket(socket)
            since = self.home.log_size()
            arguments = server_arguments(binary.path, self.home, socket)
            # The server inherits the write end of a pipe: the read end tells at once when it has ended.
            alive, held_by_server = os.pipe()
            try:
                child = start(arguments, log=self.home.log, keep=(lock.descriptor, held_by_server))
            except OSError as error:
                os.close(alive)
                raise ConfigError(f"{binary} cannot be started: {error}.") from error
            finally:
                os.close(held_by_server)
        try:
            return Launched(self._await(alive, since=since), child)
        except BaseException:
            if child is not None:
                child.terminate()
                child.wait(_END_TIMEOUT_S)
            raise
        finally:
            os.close(alive)

    def _claim(self, lock: FileLock) -> bool:
        """Take the lock the new server will hold; False if a server holds it that can be reached.

        One that cannot be reached comes up or goes down at this moment, or has lost its socket (someone cleaned the
        directory). The latter is ended, cleanly, and replaced: nobody can use it, and two must not write one file.
        """
        grace_over = time.monotonic() + _UNREACHABLE_GRACE_S
        while not lock.take(timeout_s=_POLL_S):
            try:
                if look(self.home) is not None:
                    return False
            except TimeoutError:
                raise silent(self.home) from None
            if time.monotonic() >= grace_over and (process := process_of(self.home)) is not None:
                process.end(timeout_s=_END_TIMEOUT_S)
            if time.monotonic() >= self.deadline:
                raise BackendUnavailable(
                    f"A server holds {self.home.data_dir} but cannot be reached or found.",
                    hint=f"End what has {self.home.server_lock} open (`fuser` names it), then run the command again.",
                )
        return True

    def _refuse_older(self, binary: ServerBinary) -> None:
        """A 6.2 looks for its data in another place than its successors, and would start empty without a word."""
        if binary.version < (7, 0, 0) and (self.home.data_dir / "appendonlydir").is_dir():
            raise ConfigError(
                f"The data in {self.home.data_dir} was written by a newer server than {binary}.",
                hint="Set DELAYQ_REDIS_SERVER to a server >= 7, or DELAYQ_DATA_DIR to another directory.",
            )

    def _end_stray(self, socket: Path) -> None:
        """End a server that has our socket but not our directory, which was removed under it and made again."""
        try:
            answer = ask(socket)
        except TimeoutError:
            raise silent(self.home) from None
        if answer is None:
            return
        stray = ServerProcess(answer.pid, socket) if answer.pid is not None else None
        if stray is None or not stray.is_alive() or not stray.end(timeout_s=_END_TIMEOUT_S):
            raise ConfigError(
                f"The socket {socket} is in use by a server of another data directory, perhaps in another container.",
                hint="Set XDG_RUNTIME_DIR to a directory that only this machine uses.",
            )

    def _await(self, alive: int | None, *, since: int) -> Running:
        """Wait for PONG. `alive` reads end-of-file when the server has ended; None for one we did not start."""
        while True:
            try:
                running = look(self.home)
            except TimeoutError:
                running = None
            if running is not None and running.is_ready:
                return running
            if _has_ended(alive):
                raise self._ended(since)
            if time.monotonic() >= self.deadline:
                raise self._late(running)

    def _ended(self, since: int) -> BackendUnavailable:
        return BackendUnavailable(
            f"The embedded server ended while it started. Its last words:\n{self.home.log_tail(since=since)}\n",
            hint=f"All it said is in {self.home.log}. If its data is damaged, repair it with redis-check-aof or "
            f"valkey-check-aof, or move {self.home.data_dir} away to begin anew.",
        )

    def _late(self, running: Running | None) -> BackendUnavailable:
        state = f"answers '{running.words}'" if running is not None else "does not answer"
        return BackendUnavailable(
            f"The embedded server on {self.home.data_dir} was started but still {state}.",
            hint=f"Try again in a moment; {self.home.log} says what it does.",
        )


def _has_ended(alive: int | None) -> bool:
    """Waits a moment, so that the caller's loop needs no other pause."""
    if alive is None:
        time.sleep(_POLL_S)
        return False
    readable, _, _ = select.select([alive], [], [], _POLL_S)
    return bool(readable)
