"""Which source files changed, found by looking. For development: a few thousand files, a look takes milliseconds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

Mark = tuple[int, int, int]
"""Of a file: when it was changed (ns), its size, its inode. A file that was replaced at the same size has another."""

_SUFFIXES: Final = (".py", ".toml", ".env")
_NEVER: Final = frozenset({"__pycache__", "node_modules"})
_ENVIRONMENT: Final = "pyvenv.cfg"


class Watch:
    """Looks at all sources below some folders. Hidden folders and virtual environments are left out."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._seen = dict(_marks(folders))

    def changed(self) -> list[str]:
        """The files that came, went or changed since the last call, sorted."""
        now = dict(_marks(self._folders))
        before, self._seen = self._seen, now
        return sorted(path for path in {*before, *now} if before.get(path) != now.get(path))


def _marks(folders: Sequence[Path]) -> Iterator[tuple[str, Mark]]:
    for folder in folders:
        for root, below, files in os.walk(folder):
            below[:] = [name for name in below if not name.startswith(".") and name not in _NEVER]
            if _ENVIRONMENT in files:
                below.clear()
                continue
            for name in files:
                if name.endswith(_SUFFIXES):
                    yield from _mark(os.path.join(root, name))  # noqa: PTH118  (twice as fast, for each file)


def _mark(path: str) -> Iterator[tuple[str, Mark]]:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:  # it went between the two looks
        return
    yield path, (found.st_mtime_ns, found.st_size, found.st_ino)
