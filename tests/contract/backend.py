"""One row of the contract suite: a driver, what it says it can do, and how its real server is started.

A module of `tests/contract/backends` has rows in `BACKENDS`; each test of the suite runs once for each of them. What a
driver cannot do is asked of its capabilities, and a test that needs it is skipped with that reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from delayq.drivers.capabilities import Capabilities

IT = "it"
"""The name of the connection under test."""


class Server(Protocol):
    """A running server of its own, private to this run, stopped by whoever started it."""

    def settings(self, *, lease: str) -> Mapping[str, Any]:
        """What `Settings` takes so that the connection `IT` leads here; `lease` is how long a reservation lasts.

        Called once for each test; what it leads to is empty, or holds nothing in queues of new names.
        """

    def away(self) -> Mapping[str, Any]:
        """The same for a connection to a place where nobody answers."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A row. `start` ends the test with `tests.support.flavours.missing` where the machine has no such server."""

    name: str
    can: Capabilities
    start: Callable[[], AbstractContextManager[Server]]

    def __str__(self) -> str:
        return self.name
