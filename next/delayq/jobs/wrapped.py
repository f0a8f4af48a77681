"""Handlers that run code around another handler: middleware, the loading of models, fresh database connections."""

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from delayq.jobs.context import JobContext
from delayq.jobs.handlers import Handler
from delayq.jobs.own_loop import run_in_own_loop


class WrappedHandler:
    """A handler around an inner handler, whose members are copied. Derived classes define `call_after`."""

    def __init__(self, handler: Handler) -> None:
        self.name = handler.name
        self.options = handler.options
        self.is_async = handler.is_async
        self.wants_context = handler.wants_context
        self.has_failed_hook = handler.has_failed_hook
        self.has_middleware = handler.has_middleware
        self.model_fields = handler.model_fields
        self.payload_members = handler.payload_members
        self.origin = handler.origin
        self.policy = handler.policy
        self.read = handler.read
        self.failed = handler.failed
        self.instance = handler.instance
        self.call_on = handler.call_on
        self._handler = handler

    def call(self, job: Any, context: JobContext | None) -> Any:
        """Run the job."""
        return self.call_after(job, context, None)

    def call_after(self, job: Any, context: JobContext | None, before: Callable[[], None] | None) -> Any:
        """Run the job. `before` is called right before the innermost handler."""
        raise NotImplementedError


class HandlerInside(WrappedHandler):
    """A handler inside a context manager.

    `around`: returns the context manager for a plain handler. `aaround`: the same for a coroutine function. Both
    functions get the job that `read` returned, and may change this job. They also get the context, or None if no
    handler needs it.
    """

    def __init__(
        self,
        handler: Handler,
        around: Callable[[Any, JobContext | None], AbstractContextManager[Any]],
        aaround: Callable[[Any, JobContext | None], AbstractAsyncContextManager[Any]],
    ) -> None:
        super().__init__(handler)
        self._around = around
        self._aaround = aaround

    def call_after(self, job: Any, context: JobContext | None, before: Callable[[], None] | None) -> Any:
        """Run the job inside the context manager."""
        if self.is_async:
            return self._acall_after(job, context, before)
        with self._around(job, context):
            return finished(self._call_inner(job, context, before))

    async def _acall_after(self, job: Any, context: JobContext | None, before: Callable[[], None] | None) -> Any:
        async with self._aaround(job, context):
            if before is not None and not isinstance(self._handler, WrappedHandler):
                await asyncio.to_thread(before)
                before = None
            return await self._call_inner(job, context, before)

    def _call_inner(self, job: Any, context: JobContext | None, before: Callable[[], None] | None) -> Any:
        if isinstance(self._handler, WrappedHandler):
            return self._handler.call_after(job, context, before)
        if before is not None:
            before()
        return self._handler.call(job, context)


def finished(result: Any) -> Any:
    """Return the result of a plain handler. If it is a coroutine, because a decorator hides `async`, run it."""
    return run_in_own_loop(result) if inspect.isawaitable(result) else result
