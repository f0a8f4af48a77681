"""The ledger: what handlers really did, in a file that survives every death but the machine's.

Each line is one event, appended in one write: job, phase (start, end, fail), attempt, token, pid, ms. It is a file and
not Redis, because what Redis says is what is under test. The time is the machine's, which is Redis' own here.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol


class Attempt(Protocol):
    """What is written of an attempt; a `JobContext` is one."""

    @property
    def id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def token(self) -> str: ...


class Line(NamedTuple):
    """One event of one job."""

    job: str
    phase: str
    attempt: int
    token: str
    pid: int
    at_ms: int


class Ledger:
    """The file at `path`. Any number of processes may write it at once."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def write(self, phase: str, context: Attempt) -> None:
        """Append one event."""
        words = (context.id, phase, context.attempt, context.token, os.getpid(), int(time.time() * 1000))
        os.write(self._fd, (" ".join(map(str, words)) + "\n").encode())

    def lines(self, phase: str = "") -> list[Line]:
        """All events, or those of one phase, in the order they were written."""
        found = []
        for text in self.path.read_text().splitlines():
            job, what, attempt, token, pid, at_ms = text.split(" ")
            found.append(Line(job, what, int(attempt), token, int(pid), int(at_ms)))
        return [line for line in found if not phase or line.phase == phase]

    def jobs(self, phase: str) -> list[str]:
        """The job of each event of one phase."""
        return [line.job for line in self.lines(phase)]

    def has_all(self, phase: str, jobs: Sequence[str]) -> bool:
        """Whether each of them has such an event."""
        return set(jobs) <= set(self.jobs(phase))

    def counted(self, phase: str) -> Counter[str]:
        """How often each job has an event of that phase."""
        return Counter(self.jobs(phase))

    def open_starts(self, pids: Sequence[int]) -> int:
        """Starts by these processes that have no end and no failure of the same token: what died with them."""
        ended = {(line.job, line.token) for line in self.lines() if line.phase != "start"}
        mine = {(line.job, line.token) for line in self.lines("start") if line.pid in set(pids)}
        return len(mine - ended)
