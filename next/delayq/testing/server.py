"""The private server of a test run: a process of its own, with a socket in a temporary folder."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from delayq.redis.embedded.binary import find_program
from delayq.settings.model import load_settings


class PrivateServer:
    """A server that stores no data on disk. Use it in a `with` statement.

    The first call of a client waits until the server listens. The program comes from the setting `redis_server`, or
    else from `delayq[embedded]`, or else from PATH. Raises ConfigError if no program is found.
    """

    def __enter__(self) -> Self:
        program = find_program(load_settings().redis_server)
        self._folder = Path(tempfile.mkdtemp(prefix="delayq-test-"))
        socket = self._folder / "server.sock"
        words = [program.path, "--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"]
        words += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
        self._process = subprocess.Popen(
            [*words, "--dir", str(self._folder), "--logfile", str(self._folder / "server.log")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # else a test run that is killed would not close its output
            start_new_session=True,
        )
        self.url = f"unix://{socket}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
