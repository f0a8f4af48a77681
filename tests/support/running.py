"""A worker in a process that is forked from the test, and what comes back from it."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from delayq.worker.fork import fork, is_told
from delayq.worker.options import StopReason
from delayq.worker.plan import Plan
from delayq.worker.supervisor import Supervisor
from tests.support.tape import Tape, Tapes
from tests.support.waiting import wait_until

PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Said:
    """What workers say: log records as (logger, level, text), and why each stopped, as (process, reason)."""

    lines: Tape[tuple[str, str, str]]
    reasons: Tape[tuple[int, StopReason]]

    def text(self) -> str:
        return "\n".join(f"{level} {name}: {text}" for name, level, text in self.lines)


class Running:
    """A worker in a process of its own."""

    def __init__(self, plan: Plan, said: Said) -> None:
        self._said = said
        with warnings.catch_warnings():
            # Newer Pythons warn of a fork beside threads. Those of the test hold no lock a worker would need.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process = fork(lambda pipe: self._run(replace(plan, told=partial(is_told, pipe))), [])
        self.pid = self._process.pid
        self._reason: StopReason | None = None

    def ask(self) -> None:
        """Ask for a stop."""
        if self._reason is None:
            self._process.tell()

    def stop(self, timeout: float = PATIENCE_S) -> StopReason:
        """Ask for a stop and wait for it."""
        self.ask()
        return self.join(timeout)

    def join(self, timeout: float = PATIENCE_S) -> StopReason:
        """Wait until the worker stops by itself; its reason."""
        if self._reason is None:
            try:
                wait_until(self._process.has_ended, timeout=timeout, what="the worker has stopped")
            finally:
                self._process.kill()
                self._process.wait()
            found = dict(self._said.reasons[:])
            assert self.pid in found, f"the worker ended with an error:\n{self._said.text()}"
            self._reason = found[self.pid]
        return self._reason

    def _run(self, plan: Plan) -> None:
        log = logging.getLogger()
        log.handlers[:] = [_ToTape(self._said.lines)]
        log.setLevel(logging.INFO)
        reason = Supervisor(plan).run()
        self._said.reasons.append((os.getpid(), reason))


class _ToTape(logging.Handler):
    """Log records: logger, level, text with its traceback."""

    def __init__(self, tape: Tape[tuple[str, str, str]]) -> None:
        super().__init__()
        self._tape = tape

    def emit(self, record: logging.LogRecord) -> None:
        self._tape.append((record.name, record.levelname, self.format(record)))


def run(plan: Plan) -> StopReason:
    """A worker until it stops by itself; why it did."""
    with tempfile.TemporaryDirectory(prefix="dq-running-") as folder:
        tapes = Tapes(Path(folder))
        try:
            return Running(plan, Said(tapes.tape(), tapes.tape())).join()
        finally:
            tapes.close()
