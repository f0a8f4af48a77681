"""Closes stale database connections of Django before and after each job of a worker, if Django is configured.

Without this, each job after a restart of the database would fail until the worker is restarted.
"""

import inspect
import sys
from collections.abc import Awaitable
from typing import Any, Protocol

from delayq.jobs.context import JobContext
from delayq.jobs.handlers import Handler
from delayq.jobs.registry import Registry
from delayq.jobs.wrapped import HandlerInside


class Handlers(Protocol):
    """Finds handlers."""

    def get(self, name: str) -> Handler:
        """Return the handler of a name; raises UnknownJob."""
        ...


def handlers_of_child(registry: Registry) -> Handlers:
    """Return the handlers that a new child process calls.

    If Django is configured, close all connections first, because the child inherited them from its parent.
    """
    if not uses_django():
        return registry
    from delayq.contrib.django import close_all

    close_all()
    return _InDjango(registry)


def uses_django() -> bool:
    """Return True if Django is configured and its applications are loaded. An import of Django is not enough."""
    conf, apps = sys.modules.get("django.conf"), sys.modules.get("django.apps")
    return conf is not None and apps is not None and conf.settings.configured and apps.apps.ready


class _InDjango:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._wrapped: dict[Handler, Handler] = {}

    def get(self, name: str) -> Handler:
        handler = self._registry.get(name)
        if handler not in self._wrapped:
            self._wrapped[handler] = _HandlerInDjango(handler)
        return self._wrapped[handler]


class _HandlerInDjango(HandlerInside):
    def __init__(self, handler: Handler) -> None:
        from delayq.contrib.django import fresh_connections, own_connections

        super().__init__(handler, fresh_connections, own_connections)
        self.failed = self._failed

    def _failed(self, job: Any, error: BaseException, context: JobContext | None) -> Awaitable[None] | None:
        with self._around(job, context):
            answer = self._handler.failed(job, error, context)
        return self._awaited(answer) if inspect.isawaitable(answer) else None

    async def _awaited(self, answer: Awaitable[None]) -> None:
        async with self._aaround(None, None):
            await answer
