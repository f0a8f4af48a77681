"""A consumer as a process of its own, with what it printed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
END_TIMEOUT_S = 20.0


class Program:
    """A running program whose output goes to files."""

    def __init__(self, command: Sequence[str], folder: Path, environ: dict[str, str], *, cwd: Path = ROOT) -> None:
        """`folder` takes the files with what it prints; it runs in `cwd`."""
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("a") as out, self._err.open("a") as err:
            # A session of its own, so that `kill` reaches what it started too.
            self.process = subprocess.Popen(
                command, stdout=out, stderr=err, cwd=cwd, env=environ, start_new_session=True
            )

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The complete lines on stdout, each one a JSON object."""
        return [json.loads(line) for line in self.output.splitlines(keepends=True) if line.endswith("\n")]

    @property
    def output(self) -> str:
        """Everything on stdout so far."""
        return self._out.read_text()

    @property
    def complaints(self) -> str:
        return self._err.read_text()

    def ids(self) -> list[str]:
        """Of the jobs it handled, in order."""
        return [line["id"] for line in self.lines]

    def wait_for_ids(self, *ids: str, timeout: float = 30.0) -> None:
        """Until these were handled, in this order, and nothing else."""
        wait_until(lambda: self.ids() == list(ids) or self._ended(), timeout=timeout, what=f"{ids} are handled")
        assert self.ids() == list(ids), self.complaints

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=END_TIMEOUT_S)

    def kill(self) -> None:
        """SIGKILL for it and what it started, and wait until it is gone."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=END_TIMEOUT_S)

    def _ended(self) -> bool:
        return self.process.poll() is not None


@contextmanager
def running(command: Sequence[str], folder: Path, **environ: str) -> Iterator[Program]:
    """Start a program from the root of the checkout; it is gone when the block ends."""
    program = Program([sys.executable, *command], folder, {**os.environ, **environ})
    try:
        yield program
    finally:
        program.kill()
