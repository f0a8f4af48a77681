"""On what a run was made, in words: a figure without its machine says nothing."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from delayq.redis.server_binary import ServerBinary


def describe(binary: ServerBinary) -> dict[str, Any]:
    """Processor, memory, system, versions, and how busy the machine was when the run began."""
    return {
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
        f"msgspec {about['msgspec']}.",
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
