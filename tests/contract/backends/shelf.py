"""The suite's own smallest broker, for what serves every broker."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.contract.backend import IT, Backend
from tests.support.shelf import CAPABILITIES


class Shelf:
    """A folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def settings(self, *, lease: str) -> Mapping[str, Any]:
        """The folder, with new queues each time."""
        return {"connections": {IT: {"driver": "shelf", "folder": self._folder, "lease": lease}}}

    def away(self) -> Mapping[str, Any]:
        """A folder that is not there."""
        return {"connections": {IT: {"driver": "shelf", "folder": f"{self._folder}/not/there"}}}


@contextmanager
def start() -> Iterator[Shelf]:
    with tempfile.TemporaryDirectory(prefix="dq-shelf-") as folder:
        yield Shelf(folder)


BACKENDS = [Backend("shelf", CAPABILITIES, start)]
