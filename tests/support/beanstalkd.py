"""A beanstalkd of the suite's own: on a port of its own, with a log in a temporary folder, stopped by its pid.

Where none is installed the tests that need one are skipped aloud; they fail when DELAYQ_TEST_BEANSTALKD=1 says that it
was installed for them, as CI does.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import greenstalk

from delayq.redis.server_process import start_child
from tests.support.flavours import missing
from tests.support.waiting import wait_until

TRIES = 5


def require_beanstalkd() -> str:
    """The program; ends the test if there is none."""
    program = shutil.which("beanstalkd") or shutil.which("beanstalkd", path="/usr/bin:/usr/sbin:/usr/local/bin")
    if program is None:
        wanted = os.environ.get("DELAYQ_TEST_BEANSTALKD", "") == "1"
        missing("no beanstalkd on this machine: apt-get install beanstalkd", allowed=not wanted)
        raise AssertionError  # `missing` has ended the test
    return program


class Beanstalkd:
    """One server, not started yet. `options` are more of its own: ["-z", "1024"]. What is written survives a kill."""

    def __init__(self, options: list[str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dq-bs-", dir="/tmp"))
        self.port = 0
        self._options = options or []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Until it answers. It ends with this process. A port that somebody took meanwhile is exchanged for another."""
        words = [require_beanstalkd(), "-l", "127.0.0.1", "-b", str(self.folder), *self._options]
        for _ in range(TRIES):
            port = self.port or _free_port()
            self._process = start_child([*words, "-p", str(port)], log=self.folder / "log", keep=())
            if self._comes(port):
                self.port = port
                return
        raise AssertionError(f"beanstalkd did not start: {(self.folder / 'log').read_text()}")

    def _comes(self, port: int) -> bool:
        """Whether it answers there, or has ended before it did."""
        wait_until(lambda: self._ended() or _answers(port), what="beanstalkd starts")
        return not self._ended()

    def kill(self) -> None:
        """At once, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Stop it and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def client(self, *tubes: str) -> greenstalk.Client[bytes]:
        """A plain client that uses and watches the first of these tubes. The caller closes it."""
        tube = tubes[0] if tubes else "default"
        return greenstalk.Client(("127.0.0.1", self.port), encoding=None, use=tube, watch=list(tubes) or [tube])

    def empty(self) -> None:
        """Delete everything, also what is buried. Nothing may be reserved any more."""
        with self.client() as client:
            for tube in client.tubes():
                client.use(tube)
                for peek in (client.peek_ready, client.peek_delayed, client.peek_buried):
                    with suppress(greenstalk.NotFoundError):
                        while True:
                            client.delete(peek())

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None


def _answers(port: int) -> bool:
    try:
        with greenstalk.Client(("127.0.0.1", port), encoding=None) as client:
            client.stats()
    except (OSError, AssertionError):
        return False
    return True


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
