"""Embedded servers of a test: which process serves a directory, and the end of all of them."""

import fcntl
import os
import signal
from pathlib import Path

import redis

from delayq.redis.embedded.server import EmbeddedServer
from tests.support.waiting import wait_until


def process_id(server: EmbeddedServer) -> int:
    """Return the process that answers on the socket of a server."""
    with redis.Redis(unix_socket_path=str(server.socket)) as connection:
        return int(connection.info("server")["process_id"])


def has_written(server: EmbeddedServer) -> bool:
    """Whether a server has given all its answers to the system: while it syncs, it keeps them for up to two seconds."""
    with redis.Redis(unix_socket_path=str(server.socket)) as connection:
        return int(connection.info("persistence")["aof_buffer_length"]) == 0


def is_held(data_dir: Path) -> bool:
    """Whether a server lives on a data directory."""
    lock = data_dir / "server.lock"
    if not lock.exists():
        return False
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def kill(server: EmbeddedServer) -> None:
    """Kill a server, and wait until it has let go of its data."""
    os.kill(process_id(server), signal.SIGKILL)
    wait_until(lambda: not is_held(server.data_dir))


def kill_all(folder: Path) -> None:
    """Kill each server with its data somewhere below a folder."""
    for lock in folder.rglob("server.lock"):
        server = EmbeddedServer(lock.parent)
        if is_held(lock.parent):
            kill(server)
        server.socket.unlink(missing_ok=True)
