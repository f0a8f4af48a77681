"""How much processor time a program costs: that does not depend on who else wants the processor."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Mapping
from pathlib import Path


def effort_s(*command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, times: int = 5) -> float:
    """Run a program that must succeed so many times; the least it took, in seconds of processor time."""

    def run() -> float:
        before = _spent_s()
        subprocess.run(command, env=env, cwd=cwd, stdout=subprocess.DEVNULL, timeout=30, check=True)
        return _spent_s() - before

    return min(run() for _ in range(times))


def _spent_s() -> float:
    """By all children of this process that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
