"""The files of one embedded server.

    data directory     appendonlydir/ …   the data, written by the server (appendonly.aof by a 6.2)
                       server.log         what the server printed
                       server.pid         its process id, written by the server
                       server.socket      one line: where its socket is
                       server.lock        held by the server for as long as it lives
                       start.lock         held by a command while it starts or stops the server
                       up.lock            held in parts by every `delayq up`
    socket directory   <hash>.sock        in a short private directory, named after the data directory

A socket's path must fit in 103 bytes, so it cannot stand in just any data directory. Where it stands depends on the
environment, which differs between a shell, cron and sudo; so `server.socket` tells the others.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delayq.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_SOCKET_PATH: Final = 103
"""Bytes. macOS allows 104 with the closing zero, Linux 108."""

_LOG_KEPT_BYTES: Final = 1024 * 1024
_LOG_LINES_SHOWN: Final = 6


def default_data_dir() -> Path:
    """The user's data directory for delayq; nothing is created.

    Raises:
        ConfigError: this user has no home directory.
    """
    try:
        if sys.platform == "darwin":
            base = Path.home() / "Library" / "Application Support"
        else:
            named = Path(os.environ.get("XDG_DATA_HOME", ""))
            # The XDG rules: a relative path counts as not set.
            base = named if named.is_absolute() else Path.home() / ".local" / "share"
    except RuntimeError:
        raise ConfigError(
            f"User {os.geteuid()} has no home directory to keep data in.",
            hint="Set DELAYQ_DATA_DIR to a directory you can write to.",
        ) from None
    return base / "delayq"


def project_data_dir(project: Path) -> Path:
    """The directory of one project below that of the user; nothing is created. Raises as `default_data_dir`."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", project.name)[:40] or "root"
    digest = hashlib.sha256(os.fsencode(project)).hexdigest()[:8]
    return default_data_dir() / "projects" / f"{name}-{digest}"


@dataclass(frozen=True, slots=True)
class ServerHome:
    """Where one server's files are. The paths exist after `prepare()`."""

    data_dir: Path
    """Absolute and resolved: two spellings of one directory must not mean two servers."""

    @property
    def log(self) -> Path:
        return self.data_dir / "server.log"

    @property
    def pidfile(self) -> Path:
        return self.data_dir / "server.pid"

    @property
    def server_lock(self) -> Path:
        return self.data_dir / "server.lock"

    @property
    def start_lock(self) -> Path:
        return self.data_dir / "start.lock"

    @property
    def up_lock(self) -> Path:
        return self.data_dir / "up.lock"

    @property
    def _socket_record(self) -> Path:
        return self.data_dir / "server.socket"

    def exists(self) -> bool:
        """Whether a server was ever started here."""
        return self.start_lock.exists()

    def prepare(self) -> None:
        """Make the data directory, readable by its owner alone. Raises OSError."""
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > _LOG_KEPT_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))

    @property
    def socket_name(self) -> str:
        """Of a server started on this directory; no other directory has the same."""
        return hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:16] + ".sock"

    def socket(self) -> Path | None:
        """The socket of the server that was started last; the record may be stale, or a copy of another directory's."""
        try:
            return Path(self._socket_record.read_text().strip())
        except FileNotFoundError:
            return None

    def record_socket(self, path: Path) -> None:
        """Written before the server starts, so that no moment exists in which one runs that others cannot find."""
        fresh = self._socket_record.with_suffix(".new")
        fresh.write_text(f"{path}\n")
        fresh.replace(self._socket_record)

    def pid(self) -> int | None:
        """What the pid file says. It may be stale, and the number another process's by now."""
        try:
            text = self.pidfile.read_text().strip()
        except FileNotFoundError:
            return None
        return int(text) if text.isdecimal() else None

    def clear(self) -> None:
        """Remove what a killed server leaves behind; called only when none lives."""
        for leftover in (self.socket(), self.pidfile, self._socket_record):
            if leftover is not None:
                leftover.unlink(missing_ok=True)

    def log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def log_tail(self, *, since: int) -> str:
        """The last lines the server printed after byte `since`, to show in an error."""
        if not self.log.exists():
            return "(nothing)"
        printed = self.log.read_bytes()[since:].decode("utf-8", "replace")
        lines = [line.strip() for line in printed.splitlines() if line.strip()]
        return "\n".join(f"  {line}" for line in lines[-_LOG_LINES_SHOWN:]) or "(nothing)"

    def choose_socket(self) -> Path:
        """A path for a new server's socket, in a directory that only this user can enter.

        Raises:
            ConfigError: no such directory can be had; the message says why for each.
        """
        refusals = []
        for folder in _socket_folders():
            refusal = _refusal(folder, self.socket_name)
            if refusal is None:
                return folder / self.socket_name
            refusals.append(f"{folder} {refusal}")
        raise ConfigError(
            f"There is no directory for the server's socket: {'; '.join(refusals)}.",
            hint="Set XDG_RUNTIME_DIR to a short, private directory of yours.",
        )


def _socket_folders() -> Iterator[Path]:
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute():
        yield runtime / "delayq"
    for shared in dict.fromkeys((os.environ.get("TMPDIR", ""), "/tmp")):
        if Path(shared).is_absolute():
            yield Path(shared) / f"delayq-{os.geteuid()}"


def _refusal(folder: Path, name: str) -> str | None:
    """Why `folder` cannot hold the socket; None if it can. Makes it if it is missing.

    Where everybody can write, another user may have made this directory first, and would own what we put there.
    """
    if len(os.fsencode(folder / name)) > LONGEST_SOCKET_PATH:
        return "makes a path longer than a socket may have"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        return f"cannot be made ({error.strerror})"
    if not stat.S_ISDIR(found.st_mode):
        return "is a link"
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}"
    if found.st_mode & 0o077:
        return f"is open to others (mode {stat.S_IMODE(found.st_mode):o})"
    return None
