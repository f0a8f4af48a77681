"""Runs a handler inside its middleware."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from delayq.jobs.context import JobContext
from delayq.jobs.handlers import Handler
from delayq.jobs.middleware import AnyMiddleware, RunningJob, check_fits, check_middleware
from delayq.jobs.wrapped import WrappedHandler, finished


class HandlerWithMiddleware(WrappedHandler):
    """A handler with middleware around it. All methods except `call` and `call_after` are those of the handler."""

    def __init__(self, handler: Handler, middleware: Sequence[AnyMiddleware]) -> None:
        super().__init__(handler)
        self.wants_context = True
        self._middleware = tuple(middleware)

    def call_after(self, job: Any, context: JobContext | None, before: Callable[[], None] | None) -> Any:
        """Run the job inside its middleware. `before` is called after all middleware, right before the handler."""
        assert context is not None
        instance = self._handler.instance(job, context)
        own = check_middleware(instance.middleware()) if self._handler.has_middleware else ()
        check_fits(
            own, self.name, is_async=self.is_async, timeout_ms=self.options.timeout_ms, members=self.payload_members
        )
        running = RunningJob(context, job, instance)
        call = _run_async if self.is_async else _run
        return call((*self._middleware, *own), running, lambda: self._handler.call_on(instance, job, context), before)


def _run(
    middleware: Sequence[Any], job: RunningJob, handler: Callable[[], Any], before: Callable[[], None] | None
) -> Any:
    if middleware:
        return middleware[0].handle(job, lambda passed: _run(middleware[1:], passed, handler, before))
    if before is not None:
        before()
    return finished(handler())


async def _run_async(
    middleware: Sequence[Any],
    job: RunningJob,
    handler: Callable[[], Awaitable[Any]],
    before: Callable[[], None] | None,
) -> Any:
    if middleware:
        return await middleware[0].ahandle(job, lambda passed: _run_async(middleware[1:], passed, handler, before))
    if before is not None:
        await asyncio.to_thread(before)
    return await handler()
