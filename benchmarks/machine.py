"""On what a run was made, and of which code, in words: a figure without these says nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from delayq.redis.server_binary import ServerBinary

ROOT: Final = Path(__file__).resolve().parents[1]
UNKNOWN: Final = "unknown"


def commit() -> str:
    """The commit of this checkout as git says it, `-dirty` behind it if a file was changed; `unknown` without git."""
    words = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10.0, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return UNKNOWN
    return done.stdout.strip() or UNKNOWN


def describe(binary: ServerBinary) -> dict[str, Any]:
    """Commit, processor, memory, system, versions, and how busy the machine was when the run began."""
    return {
        "commit": commit(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "server": f"{binary.product} {binary.version_text} from {binary.source}",
        "redis_py": version("redis"),
        "hiredis": version("hiredis"),
        "msgspec": version("msgspec"),
        "load_at_start": round(os.getloadavg()[0], 2),
    }


def sentences(about: dict[str, Any]) -> list[str]:
    """The same for above the table."""
    return [
        f"{about['processor']}, {about['cores']} cores, {about['memory_gib']} GiB, {about['system']}; "
        f"Python {about['python']}, redis-py {about['redis_py']}, hiredis {about['hiredis']}, "
        f"msgspec {about['msgspec']}; commit {about.get('commit', UNKNOWN)}.",
        f"{about['server']}, private unix socket, no persistence; load average at the start {about['load_at_start']}.",
        "Medians; the lowest and the highest run in brackets. Rivals take turns on one server; a ratio is the median "
        "over neighbouring runs.",
    ]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
