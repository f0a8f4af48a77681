"""What a program costs, told so that what else the machine does at the time does not count."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def processor_s(words: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> float:
    """Processor seconds of a command, which must succeed. No other child may end meanwhile."""
    before = _spent()
    subprocess.run(words, cwd=cwd, env=env, stdout=subprocess.DEVNULL, timeout=30, check=True)
    return _spent() - before


def _spent() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime
