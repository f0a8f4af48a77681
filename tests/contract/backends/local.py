"""The connections that keep no jobs: nothing to start, and no worker to serve them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from delayq.drivers import null, sync
from tests.contract.backend import IT, Backend


class Here:
    """A connection without a server."""

    def __init__(self, driver: str) -> None:
        self._driver = driver

    def settings(self, *, lease: str) -> Mapping[str, Any]:
        """Only its driver."""
        return {"connections": {IT: {"driver": self._driver}}, "lease": lease}

    def away(self) -> Mapping[str, Any]:
        """It cannot be."""
        raise AssertionError("asked only of drivers that have a server")


def _row(driver: str, module: Any) -> Backend:
    @contextmanager
    def start() -> Iterator[Here]:
        yield Here(driver)

    return Backend(driver, module.CAPABILITIES, start)


BACKENDS = [_row("null", null), _row("sync", sync)]
