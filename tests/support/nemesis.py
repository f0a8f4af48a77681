"""The one who kills and freezes: processes of a nursery, chosen by a seed that is printed and can be given again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

ROOT = Path(__file__).resolve().parents[2]


class Nemesis:
    """Starts workers and movers, and does harm to them. `held` asks how many jobs a process holds just now."""

    def __init__(self, arguments: list[str], held: Callable[[int], int]) -> None:
        self.seed = int(os.environ.get("DELAYQ_SEED", time.time_ns() % 1_000_000))
        self.random = random.Random(self.seed)  # for a run that can be repeated, not for secrets
        self.killed = 0
        self.held_by_victims = 0
        self._held = held
        self._roles: dict[int, str] = {}
        self._frozen: dict[int, float] = {}
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.support.nursery", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in list(self._roles):
            _signal(pid, signal.SIGKILL)
        self._pipe("stdin").close()
        self._nursery.wait(timeout=10)
        self._pipe("stdout").close()

    def start(self, role: str) -> int:
        """One more worker or mover."""
        self._pipe("stdin").write(f"{role}\n")
        self._pipe("stdin").flush()
        pid = int(self._pipe("stdout").readline())
        self._roles[pid] = role
        return pid

    def kill_one(self) -> None:
        """KILL a random process and start another of its kind."""
        pid = self.random.choice(list(self._roles))
        role = self._roles.pop(pid)
        _signal(pid, signal.SIGSTOP)  # so that what it holds can be counted before it is gone
        self.held_by_victims += self._held(pid)
        _signal(pid, signal.SIGKILL)
        self.killed += 1
        self.start(role)

    def freeze_one(self, seconds: float) -> None:
        """STOP a random worker that is not frozen yet; `thaw` lets it go on."""
        awake = [pid for pid, role in self._roles.items() if role == "worker" and pid not in self._frozen]
        if len(awake) <= 1:
            return
        pid = self.random.choice(awake)
        _signal(pid, signal.SIGSTOP)
        self.held_by_victims += self._held(pid)
        self.killed += 1
        self._frozen[pid] = time.monotonic() + seconds

    def thaw(self, *, all_of_them: bool = False) -> None:
        """CONT whoever was frozen long enough."""
        for pid, until in list(self._frozen.items()):
            if all_of_them or time.monotonic() >= until:
                _signal(pid, signal.SIGCONT)
                del self._frozen[pid]

    def _pipe(self, name: str) -> IO[str]:
        return cast(IO[str], getattr(self._nursery, name))


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
