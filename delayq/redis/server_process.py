"""Start a server program, and end exactly that process again."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delayq.redis.die_with_parent import ending_with_us

if TYPE_CHECKING:
    from collections.abc import Callable

    from delayq.redis.server_home import ServerHome

_POLL_S: Final = 0.01
_KILL_WAIT_S: Final = 5.0


def server_arguments(program: Path, home: ServerHome, socket: Path) -> list[str]:
    """The whole command line. No configuration file is read, so nothing of the machine's own Redis comes in."""
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(home.data_dir),
        "pidfile": str(home.pidfile),
        "daemonize": "no",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        # A queue must refuse what it cannot keep; an evicted key would be a lost job.
        "maxmemory-policy": "noeviction",
    }
    return [str(program), *(word for name, value in options.items() for word in (f"--{name}", value))]


def start_detached(arguments: list[str], *, log: Path, keep: tuple[int, ...]) -> None:
    """Start the server so that it survives this process, in a session of its own.

    A shell starts it in the background and ends at once, so it is no child of ours that somebody must wait for.
    `keep` are descriptors the server holds on to.
    """
    with log.open("ab") as output:
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "delayq", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=keep,
            start_new_session=True,
            check=True,
        )


def start_child(arguments: list[str], *, log: Path, keep: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """Start the server so that it ends with this process, on Linux even when this process is killed.

    It has a session of its own all the same: Ctrl-C in the terminal must reach the workers, not the server under them.
    Call it from a thread that lives as long as the server should: Linux watches the thread.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            ending_with_us(arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=keep,
            start_new_session=True,
        )


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """The process `pid` for as long as it is the server on `socket`; never another one that got its number later."""

    pid: int
    socket: Path

    def is_alive(self) -> bool:
        """A server shows its socket in its command line; a dead one, waited for or not, has none."""
        shown = _command_line(self.pid)
        return any(f"unixsocket{sign}{self.socket}" in shown for sign in ": ")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, or do nothing if that process is gone."""
        signal_process(self.pid, number, self.is_alive)

    def end(self, *, timeout_s: float) -> bool:
        """Ask it to stop, give it `timeout_s` seconds to write out its data, then kill it.

        False if it is there even after that: stuck in the kernel. Raises PermissionError if it is another user's.
        """
        self.send(signal.SIGTERM)
        if self.wait_gone(timeout_s=timeout_s):
            return True
        self.send(signal.SIGKILL)
        return self.wait_gone(timeout_s=_KILL_WAIT_S)

    def wait_gone(self, *, timeout_s: float) -> bool:
        """Wait until it holds nothing any more, its data directory included; False if it still serves after that."""
        deadline = time.monotonic() + timeout_s
        while self.is_alive() or _is_ending(self.pid):
            if time.monotonic() >= deadline:
                return not self.is_alive()
            time.sleep(_POLL_S)
        return True


def signal_process(pid: int, number: signal.Signals, is_it: Callable[[], bool]) -> None:
    """Send process `pid` a signal if `is_it` still; never another one that got its number meanwhile."""
    # Opened first, looked at second: what the descriptor means cannot change in between; a number could.
    descriptor = _process_descriptor(pid)
    try:
        if not is_it():
            return
        if sys.platform == "linux" and descriptor is not None:
            signal.pidfd_send_signal(descriptor, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        return
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _process_descriptor(pid: int) -> int | None:
    """A descriptor of the process; None if it is gone, or where there are none: macOS, Linux before 5.3."""
    if sys.platform == "linux":
        try:
            return os.pidfd_open(pid)
        except OSError:
            return None
    else:
        return None


def _is_ending(pid: int) -> bool:
    """Whether process `pid` has given its memory back, its command line with it, and may have files open still.

    Its descriptor tells: it can be read once the last of its threads has ended.
    """
    descriptor = None if _command_line(pid) else _process_descriptor(pid)
    if descriptor is None:
        return False
    try:
        ends = select.poll()
        ends.register(descriptor, select.POLLIN)
        return not ends.poll(0)
    finally:
        os.close(descriptor)


def _command_line(pid: int) -> str:
    """What process `pid` shows as its command; empty if there is none."""
    if sys.platform == "linux":
        try:
            shown = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        except (FileNotFoundError, ProcessLookupError):
            shown = b""
    else:
        shown = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False).stdout
    return os.fsdecode(shown)
