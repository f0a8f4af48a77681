"""Ask a server on a unix socket whether it is well: PING and INFO by hand.

A bare socket instead of a client library: to find the embedded server costs a command no import and no pool.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from pathlib import Path

ASK_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said about itself."""

    ready: bool
    """It answered PONG; otherwise `words` says why not: `LOADING …`, `BUSY …`."""
    words: str
    pid: int | None
    """None when it refused INFO."""
    product: str
    version: str


def ask(path: Path, *, timeout_s: float = ASK_TIMEOUT_S) -> Answer | None:
    """The server's answer; None if nobody listens at `path`.

    Raises:
        TimeoutError: somebody listens but says nothing: the server is stopped or stuck.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\nINFO server\r\n")
            with connection.makefile("rb") as replies:
                pong = _reply(replies)
                info = _reply(replies)
        except BlockingIOError:
            # A full backlog on Linux: connections pile up at a server that accepts none.
            raise TimeoutError(f"The server at {path} accepts no connection.") from None
        except (FileNotFoundError, ConnectionError, NotADirectoryError):
            return None
    return _answer(pong, info)


def _reply(replies: BinaryIO) -> str:
    """One simple, error or bulk reply, without its type sign unless it is an error."""
    line = replies.readline().decode("utf-8", "replace").rstrip("\r\n")
    if line.startswith("$"):
        return replies.read(int(line[1:]) + 2).decode("utf-8", "replace")
    return line.removeprefix("+")


def _answer(pong: str, info: str) -> Answer:
    members = dict(line.split(":", 1) for line in info.splitlines() if ":" in line and not line.startswith("-"))
    pid = members.get("process_id", "")
    # Valkey gives the Redis version it is compatible with as `redis_version`, and its own beside it.
    own = members.get("valkey_version")
    return Answer(
        ready=pong == "PONG",
        words=pong.removeprefix("-"),
        pid=int(pid) if pid.isdecimal() else None,
        product="Valkey" if own else "Redis",
        version=own or members.get("redis_version", ""),
    )
