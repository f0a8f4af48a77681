"""Finds, starts and stops the embedded server of a project.

    data directory     appendonlydir/   the data, written by the server
                       server.lock      locked while the server lives, because it inherits the locked descriptor
                       start.lock       locked while a command starts or stops the server
                       server.log       the log of the last server; server.log.1 is the log of the one before
    /tmp/delayq-<uid>  <hash>.sock      the socket; its path must be short, because 103 bytes are the limit

The kernel releases a lock when its process ends, so a lock is never stale. No process id is stored.
"""

import fcntl
import os
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from delayq.core.errors import BackendUnavailable, ConfigError, DelayqError
from delayq.redis.embedded.binary import ServerProgram, find_program
from delayq.redis.embedded.data_dir import data_dir_of, path_hash
from delayq.settings.model import Settings

PATIENCE: Final = 10.0
"""How long, in seconds, to wait for a server that does not answer. If the server answers "loading", this time starts
again."""

_PAUSE: Final = 0.01
_ANSWER_TIMEOUT: Final = 1.0
_LOG_LINES: Final = 3
_OPTIONS: Final = (
    "--daemonize yes --port 0 --unixsocketperm 700 "
    "--appendonly yes --appendfsync everysec --maxmemory-policy noeviction"
)
"""Options of all embedded servers. An embedded server reads no configuration file, not even that of a Redis on this
machine."""


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """The server of one data directory.

    `data_dir` is an absolute path without symbolic links. `program` is the program to run; '' = find one.
    """

    data_dir: Path
    program: str = ""

    @classmethod
    def of_project(cls, settings: Settings) -> Self:
        """Return the server of the project of these settings, without creating or starting anything.

        Raises ConfigError if the working directory or home directory is missing.
        """
        return cls(data_dir_of(settings), settings.redis_server)

    @property
    def socket(self) -> Path:
        """The path of the socket. It depends only on the user and the data directory, not on the environment."""
        return Path(f"/tmp/delayq-{os.geteuid()}/{path_hash(self.data_dir)[:16]}.sock")

    @property
    def url(self) -> str:
        """The url of the server."""
        return f"unix://{self.socket}"

    def is_running(self) -> bool:
        """Return True if the server answers. Raises ConfigError."""
        with _usable(self.data_dir):
            return self._is_held() and bool(self._ask("PING"))

    def check_data(self) -> None:
        """Raise BackendUnavailable if the data directory does not exist.

        Calls and commands that need existing data check this before they start the server. Otherwise they would create
        an empty data directory if the working directory is wrong. Raises ConfigError too.
        """
        with _usable(self.data_dir):
            has_data = self.data_dir.is_dir()
        if not has_data:
            raise BackendUnavailable(
                f"No url is set, and this project has no data: {self.data_dir} does not exist.",
                hint="Use the directory of the project as the working directory, or set DELAYQ_URL. The first "
                "scheduled job creates the data of a project, and so does `delayq work`.",
            )

    def find_or_start(self, *, patience: float = PATIENCE) -> bool:
        """Wait until the server answers and has loaded its data. If the server is not running, start it first.

        Return True if the server was started. Raises ConfigError, and BackendUnavailable if the server ends or does not
        answer for `patience` seconds.
        """
        started = False
        with _usable(self.data_dir):
            deadline = time.monotonic() + patience
            while True:
                is_held, answer = self._is_held(), self._ask("PING")
                if is_held and answer:
                    if not answer.startswith("-LOADING"):
                        return started
                    deadline = time.monotonic() + patience
                elif not is_held and answer is None:
                    if started:
                        raise self._ended()
                    started = self._start()
                if time.monotonic() >= deadline:
                    raise self._out_of_reach(is_held=is_held, answer=answer)
                time.sleep(_PAUSE)

    def stop(self, *, patience: float = PATIENCE) -> bool:
        """Shut the server down, and wait until it has written its data and released the data directory.

        Return False if no server was running. Raises ConfigError, and BackendUnavailable if the server does not end
        within `patience` seconds.
        """
        with _usable(self.data_dir):
            if not self._is_held() and self._ask("PING") is None:
                return False
            deadline = time.monotonic() + patience
            with _lock(self.data_dir / "start.lock", patience) as alone:
                if alone is None:
                    raise BackendUnavailable(
                        f"Another command has been starting or stopping the embedded server in {self.data_dir} for "
                        f"{patience:g} s.",
                        hint=f"`fuser {self.data_dir}/start.lock` shows its process id.",
                    )
                while (answer := self._ask("SHUTDOWN")) is not None or self._is_held():
                    if time.monotonic() >= deadline:
                        raise self._out_of_reach(is_held=True, answer=answer)
                    time.sleep(_PAUSE)
                return True

    def _start(self) -> bool:
        """Start the server. Return False if it is running, or if another command is just starting or stopping it."""
        program = find_program(self.program)
        with _lock(self.data_dir / "start.lock") as alone, _lock(self.data_dir / "server.lock") as lock:
            if alone is None or lock is None:
                return False
            self._refuse_older(program)
            _make_private(self.socket.parent)
            if self._log.exists():
                self._log.replace(self._log.with_suffix(".log.1"))
            words = [program.path, *_OPTIONS.split(), "--save", "", "--unixsocket", str(self.socket)]
            begun = subprocess.run(
                [*words, "--dir", str(self.data_dir), "--logfile", str(self._log)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                pass_fds=[lock],
                umask=0o077,
                start_new_session=True,
                check=False,
            )
        if begun.returncode != 0:
            raise ConfigError(f"{program.path} did not start: {begun.stderr.decode('utf-8', 'replace').strip()}")
        return True

    def _refuse_older(self, program: ServerProgram) -> None:
        """Refuse version 6.2 for data of a newer server. Version 6.2 would not find the data and would start empty."""
        if program.version < (7, 0) and (self.data_dir / "appendonlydir").is_dir():
            raise ConfigError(
                f"The data in {self.data_dir} was written by a newer server than {program.path}.",
                hint="Set DELAYQ_REDIS_SERVER to a server of version 7 or newer.",
                field="redis_server",
            )

    def _ask(self, command: str) -> str | None:
        """Send one command and return the reply. '' = no reply came; None = no server listens on the socket."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_ANSWER_TIMEOUT)
            try:
                connection.connect(str(self.socket))
                connection.sendall(f"{command}\r\n".encode())
                return connection.recv(1024).decode("utf-8", "replace").strip()
            except (FileNotFoundError, ConnectionRefusedError, PermissionError):
                return None
            except (BlockingIOError, TimeoutError, ConnectionError):  # BlockingIOError: the accept queue is full
                return ""

    def _is_held(self) -> bool:
        """Return True if a server is using the data directory, even if it does not answer."""
        try:
            descriptor = os.open(self.data_dir / "server.lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            return not _take(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    @property
    def _log(self) -> Path:
        return self.data_dir / "server.log"

    def _ended(self) -> DelayqError:
        printed = self._log.read_text("utf-8", "replace").splitlines() if self._log.exists() else []
        heading = (
            "The embedded server ended during its start. Perhaps the data was written by another server program. If "
            f"so, set DELAYQ_REDIS_SERVER to the program that wrote the data. The last lines of the log {self._log}:"
        )
        return BackendUnavailable("\n  ".join([heading, *printed[-_LOG_LINES:]]))

    def _out_of_reach(self, *, is_held: bool, answer: str | None = None) -> DelayqError:
        if answer and not is_held:
            return BackendUnavailable(
                f"A server answers on {self.socket}, but its data directory {self.data_dir} was removed.",
                hint="Stop the server with `delayq down`.",
            )
        said = f"answers {answer!r}" if answer else "does not answer"
        return BackendUnavailable(
            f"The embedded server with its data in {self.data_dir} {said}.",
            hint=f"Its log is {self._log}. `fuser {self.data_dir}/*.lock` lists the processes that use the data.",
        )


@contextmanager
def _lock(path: Path, patience: float = 0.0) -> Iterator[int | None]:
    """Lock a file during the `with` block and yield its descriptor, or None if it stays locked for `patience` seconds.

    A process that inherits the descriptor keeps the lock after the block.
    """
    deadline = time.monotonic() + patience
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while not (is_ours := _take(descriptor, fcntl.LOCK_EX)) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        yield descriptor if is_ours else None
    finally:
        os.close(descriptor)


def _take(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make_private(folder: Path) -> None:
    """Create the directory of the socket. Refuse a directory of another user, because all users may write to /tmp."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"The directory {folder} for the socket of the embedded server does not belong to this user alone.",
            hint="Remove the directory, or set DELAYQ_URL.",
        )


@contextmanager
def _usable(data_dir: Path) -> Iterator[None]:
    """Turn errors of the file system into a ConfigError with one sentence and a hint."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"The embedded server cannot use the data directory {data_dir}: {error}.",
            hint="Set DELAYQ_DATA_DIR to a directory that you can write to, or set DELAYQ_URL.",
            field="data_dir",
        ) from error
