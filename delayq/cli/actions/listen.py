"""listen: a worker that always runs the code as it is now. For development.

A worker loads its code once. So at each change this ends the worker, which finishes its job, and starts a new one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from delayq.cli.session import Session
from delayq.cli.watch import Watch
from delayq.core.errors import InvalidInput
from delayq.redis.die_with_parent import ending_with_us
from delayq.worker.signals import Signals

LOOK_S: Final = 0.25
AGAIN_S: Final = 1.0
_SHOWN: Final = 3


def listen(session: Session, folders: Sequence[Path], words: Sequence[str]) -> int:
    """Run `delayq work` with these words, anew at every change, until a signal; the last worker's exit code."""
    for folder in folders:
        if not folder.is_dir():
            raise InvalidInput(f"--watch {folder} is no folder.", hint="Name the folder that holds your code.")
    command = [sys.executable, "-m", "delayq", *_before(session), "work", *words]
    watch = Watch(folders)
    with Signals(last=True) as signals:
        session.out.note(f"Watching {', '.join(map(str, folders))}. Stop with Ctrl-C.")
        worker = _Worker(command)
        try:
            while not signals.stops:
                signals.wait(LOOK_S)
                if changed := watch.changed():
                    session.out.note(f"Changed: {_named(changed)}; the worker starts anew.")
                    worker.end(signals)
                    _drop_bytecode(session, changed)
                    worker = _Worker(command)
                elif worker.may_start_again():
                    worker = _Worker(command)
        finally:
            code = worker.end(signals)
    return code


def _before(session: Session) -> list[str]:
    """The options before the command, as they were given."""
    words = [word for name, value in session.flags.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return [*words, *(["--verbose"] if session.verbose else []), *(["--quiet"] if session.out.quiet else [])]


def _named(paths: Sequence[str]) -> str:
    names = ", ".join(os.path.relpath(path) for path in paths[:_SHOWN])
    return names if len(paths) <= _SHOWN else f"{names} and {len(paths) - _SHOWN} more"


def _drop_bytecode(session: Session, sources: Sequence[str]) -> None:
    """Remove what Python compiled of these sources.

    Python knows a source again by its length and the second in which it was changed. What is saved twice in a second,
    at one length, would go on running as it was saved first.
    """
    for source in sources:
        if source.endswith(".py"):
            try:
                Path(cache_from_source(source)).unlink(missing_ok=True)
            except OSError as error:
                session.out.note(f"The bytecode of {os.path.relpath(source)} cannot be removed: {error}.")


class _Worker:
    """One run of `delayq work`, in a group of its own: Ctrl-C reaches us, and we tell it once."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(ending_with_us(command), start_new_session=True)
        self._ended_at: float | None = None

    def may_start_again(self) -> bool:
        """Whether it left by itself, as it should, a moment ago. One that failed waits for the code to change."""
        if self._process.poll() != 0:
            return False
        self._ended_at = self._ended_at or time.monotonic()
        return time.monotonic() - self._ended_at >= AGAIN_S

    def end(self, signals: Signals) -> int:
        """Let it finish its job; its exit code. A worker keeps its own time for that. A second signal is passed on."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        told = max(1, signals.stops)
        while self._process.poll() is None:
            signals.wait(LOOK_S)
            if signals.stops > told and self._process.poll() is None:
                told = signals.stops
                self._process.send_signal(signal.SIGTERM)
        return self._process.wait()
