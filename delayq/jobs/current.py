"""The manager that `dispatch` asks: one for the process, and another inside a `with`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from delayq.jobs.registry import current, module_of
from delayq.jobs.running import LocalRunner

if TYPE_CHECKING:
    from delayq.core.endpoint import Endpoint
    from delayq.manager import Manager
    from delayq.settings import Settings

_inside: ContextVar[Manager] = ContextVar("delayq_manager")


class _Process:
    """The manager of this process, made from the settings when nobody brought one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._manager: Manager | None = None
        self._brought = False

    def get(self) -> Manager:
        if self._manager is None:
            with self._lock:
                if self._manager is None:
                    self._manager = make_manager()
        return self._manager

    def made(self) -> Manager | None:
        return self._manager

    def brought(self) -> Manager | None:
        return self._manager if self._brought else None

    def set(self, manager: Manager | None, *, brought: bool) -> None:
        with self._lock:
            self._manager, self._brought = manager, brought


_process = _Process()


def make_manager(settings: Settings | None = None, url: str | Endpoint | None = None) -> Manager:
    """A manager whose sync connections run jobs of the current registry. Without settings: those of the process.

    `url` is where its default connection leads, unless the settings define that connection themselves.
    """
    from delayq.core.redis_url import parse_endpoint
    from delayq.drivers.factories import Hands
    from delayq.manager import Manager  # with the settings comes pydantic, which a module of jobs should not cost
    from delayq.settings import Settings
    from delayq.settings.tables import DEFAULT, ConnectionSettings

    hands = Hands(LocalRunner(current_manager), module_of, _tell)
    manager = Manager(settings or Settings(), hands=hands)
    if url is not None and DEFAULT not in manager.settings.connections:
        manager.define(DEFAULT, ConnectionSettings(url=parse_endpoint(url) if isinstance(url, str) else url))
    return manager


def _tell(event: object) -> None:
    current().events.tell(event)


def current_manager() -> Manager:
    """The manager of the innermost `using_manager`, else that of the process."""
    inside = _inside.get(None)
    return _process.get() if inside is None else inside


def made_manager() -> Manager | None:
    """The manager of the process, if one was made or set; makes none."""
    return _process.made()


def brought_manager() -> Manager | None:
    """The manager of the process, if the application set it; None when it was made from the settings, or never."""
    return _process.brought()


def set_manager(manager: Manager | None) -> None:
    """Make this the manager of the process; None: one from the settings, when next asked for.

    `DelayQ()` and `AsyncDelayQ()` without an address follow it, too.
    """
    _process.set(manager, brought=manager is not None)


def replace_manager(manager: Manager) -> None:
    """As `set_manager`; what the application told the manager of the process before, this one knows too.

    For commands. `DelayQ()` follows it where it leads to a Redis, or where the application had set a manager.
    """
    told = _process.made()
    if told is not None:
        manager.take_over(told)
    is_redis = manager.settings.connection in manager.names() and manager.given().driver == "redis"
    _process.set(manager, brought=is_redis or _process.brought() is not None)


@contextmanager
def using_manager(manager: Manager) -> Iterator[Manager]:
    """Let `dispatch` ask another manager inside the block, in this thread or coroutine. `DelayQ()` does not follow."""
    token = _inside.set(manager)
    try:
        yield manager
    finally:
        _inside.reset(token)
