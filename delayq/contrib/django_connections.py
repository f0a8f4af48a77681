"""Closes Django's database connections that are broken or too old, around each job, as Django does around a request.

A worker that loads an application with Django in it does this by itself (`delayq.app.handlers`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
from django.db import close_old_connections

from delayq.jobs.context import JobContext
from delayq.jobs.handler import Handler
from delayq.jobs.opened import Opened
from delayq.jobs.stand_in import StandIn


@contextmanager
def healthy_connections() -> Iterator[None]:
    """Close the unusable connections of this thread before and after the block."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


@asynccontextmanager
async def ahealthy_connections() -> AsyncIterator[None]:
    """Do the same for the thread in which Django's async calls run."""
    from asgiref.sync import sync_to_async  # comes with Django

    await sync_to_async(close_old_connections)()
    try:
        yield
    finally:
        await sync_to_async(close_old_connections)()


class HealthyConnections(StandIn):
    """Stands around a handler, and around its `failed` hook."""

    def open(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Opened:
        """Open the inner handler's job."""
        return self.inner.open(data, context)

    def run(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Any:
        """Run the inner handler between two looks at the connections."""
        return self._between(lambda: self.inner.run(data, context))

    def failed(self, data: msgspec.Raw, error: BaseException) -> Any:
        """Tell the inner handler, likewise."""
        return self._between(lambda: self.inner.failed(data, error))

    def _between(self, call: Callable[[], Any]) -> Any:
        if self.is_async:
            return self._awaited(call)
        with healthy_connections():
            return call()

    async def _awaited(self, call: Callable[[], Any]) -> Any:
        async with ahealthy_connections():
            answer = call()
            return await answer if hasattr(answer, "__await__") else answer


def keep_connections_healthy(handler: Handler) -> Handler:
    """Return the handler with `HealthyConnections` around it."""
    return HealthyConnections(handler)
