"""Runs `delayq` as a process of its own, the way users do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import warm
from tests.support.warm import environment as environment

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def documents(self) -> list[Any]:
        """NDJSON: one document a line."""
        return [json.loads(line) for line in self.lines]


@dataclass(slots=True)
class Cli:
    """`cli("stats", "--json")`. `env` and `folder` hold for every command; `start` leaves one running."""

    folder: Path
    env: dict[str, str]
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(self, *words: str | bytes, given: str | bytes = b"", env: Mapping[str, str] | None = None) -> Done:
        given = given.encode() if isinstance(given, str) else given
        whole = {**self.env, **(env or {})}
        if ended := warm.run(words, whole, self.folder, given, TIMEOUT_S):
            return Done(ended.code, ended.out.decode(), ended.err.decode())
        done = subprocess.run(
            [sys.executable, "-m", "delayq", *words],
            input=given,
            capture_output=True,
            env=whole,
            cwd=self.folder,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def ok(self, *words: str | bytes, given: str | bytes = b"") -> Done:
        """A command that must succeed."""
        done = self(*words, given=given)
        assert done.code == 0, f"delayq {words} ended with {done.code}\n{done.out}\n{done.err}"
        assert "ResourceWarning" not in done.err, done.err
        return done

    def start(self, *words: str, by: Sequence[str] = ()) -> subprocess.Popen[str]:
        """A command that goes on; ended with the test, if it has not ended by then. `by` starts it."""
        process = subprocess.Popen(
            [*by, sys.executable, "-m", "delayq", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env,
            cwd=self.folder,
            text=True,
        )
        self.running.append(process)
        return process

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
            process.communicate()


def end(process: subprocess.Popen[str]) -> Done:
    """Wait for a started command to end by itself."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    return Done(process.returncode, out, err)
