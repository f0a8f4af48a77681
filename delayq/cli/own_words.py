"""Takes passwords out of this process's own command line, which everybody on the machine may read (`ps`)."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from delayq.core.mask import mask_url

_ARGUMENTS: Final = (45, 46)
"""Where the first and the last address of the arguments stand in /proc/self/stat, behind the name."""


def hide_passwords(words: Iterable[str]) -> None:
    """Overwrite, in place, what a URL among the words should not show; processes forked from here show as little.

    On Linux. Elsewhere, and for the moment before this, the environment and the settings file are the better place.
    """
    for word in words:
        _, _, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
        masked = mask_url(value) if "://" in value else value
        if masked != value:
            _overwrite(value.encode(), masked.encode())


def _overwrite(secret: bytes, masked: bytes) -> None:
    if sys.platform != "linux":
        return
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        start, end = (int(fields[at]) for at in _ARGUMENTS)
    except (OSError, ValueError, IndexError):
        return  # hidden by the system: then from others too
    if not 0 < start < end:
        return
    at = ctypes.string_at(start, end - start).find(secret)
    if at >= 0:
        shown = masked[: len(secret)].ljust(len(secret), b"*")
        ctypes.memmove(start + at, shown, len(secret))
