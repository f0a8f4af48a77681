"""Find the server that runs on a data directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from delayq.core.errors import BackendUnavailable
from delayq.redis.server_lock import FileLock
from delayq.redis.server_probe import Answer, ask
from delayq.redis.server_process import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from delayq.redis.server_home import ServerHome


@dataclass(frozen=True, slots=True)
class Running:
    """An embedded server that runs."""

    url: str
    """`unix:///run/user/1000/delayq/4f….sock?db=0`, for any Redis client."""
    pid: int
    socket: Path
    product: str
    version: str
    words: str = ""
    """Empty when it is ready; otherwise what it answers to PING: `LOADING …` while it reads its data."""

    @property
    def is_ready(self) -> bool:
        return not self.words


def look(home: ServerHome) -> Running | None:
    """The server on this directory; None if there is none that can be reached.

    Raises:
        TimeoutError: it accepts connections but answers nothing.
    """
    socket = _socket_of(home)
    answer = ask(socket) if socket is not None else None
    if socket is None or answer is None:
        return None
    pid = answer.pid or home.pid()
    if pid is None or not _is_of(home, answer):
        return None
    return Running(
        url=f"unix://{quote(str(socket))}?db=0",
        pid=pid,
        socket=socket,
        product=answer.product,
        version=answer.version,
        words="" if answer.ready else answer.words,
    )


def find(home: ServerHome) -> Running | None:
    """As `look`. Raises BackendUnavailable if the server answers nothing."""
    try:
        return look(home)
    except TimeoutError:
        raise silent(home) from None


def process_of(home: ServerHome) -> ServerProcess | None:
    """The live process that serves this directory, reachable or not; None if there is none.

    The number is the pid file's or the server's own; it counts only if that process shows the socket as its own.
    """
    socket = _socket_of(home)
    if socket is None:
        return None
    recorded = home.pid()
    if recorded is not None and (process := ServerProcess(recorded, socket)).is_alive():
        return process
    running = find(home)
    if running is not None and (process := ServerProcess(running.pid, socket)).is_alive():
        return process
    return None


def is_held(home: ServerHome) -> bool:
    """Whether a server lives on this directory, reachable or not."""
    with FileLock(home.server_lock) as lock:
        return not lock.is_free()


def silent(home: ServerHome) -> BackendUnavailable:
    return BackendUnavailable(
        f"The embedded server on {home.data_dir} (process {home.pid()}) accepts connections but does not answer.",
        hint="Try again if the machine is busy; otherwise end it with `delayq down` and run the command again.",
    )


def _socket_of(home: ServerHome) -> Path | None:
    """The recorded socket, unless the record came here with a copy of another directory, whose server may well run."""
    socket = home.socket()
    if socket is None or socket.name == home.socket_name or is_held(home):
        return socket
    return None


def _is_of(home: ServerHome, answer: Answer) -> bool:
    """Whether the one who answered works on this very directory, and not on one of the same name in another container.

    The pid file comes first because it costs less than the lock, and says the same.
    """
    return (answer.pid is not None and answer.pid == home.pid()) or is_held(home)
