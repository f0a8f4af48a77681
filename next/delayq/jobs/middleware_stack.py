"""Runs a handler inside its middleware."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from delayq.core.outcome import Policy
from delayq.jobs.context import JobContext
from delayq.jobs.handlers import Handler, as_coroutine
from delayq.jobs.middleware import AnyMiddleware, RunningJob, check_fits, check_middleware


class HandlerWithMiddleware:
    """A handler with middleware around it. The other methods are those of the handler."""

    wants_context = True

    def __init__(self, handler: Handler, middleware: Sequence[AnyMiddleware]) -> None:
        self.name = handler.name
        self.options = handler.options
        self.is_async = handler.is_async
        self.has_failed_hook = handler.has_failed_hook
        self.has_middleware = handler.has_middleware
        self.origin = handler.origin
        self.policy: Callable[[Policy], Policy] = handler.policy
        self.read = handler.read
        self.failed = handler.failed
        self.instance = handler.instance
        self.call_on = handler.call_on
        self._handler = handler
        self._middleware = tuple(middleware)

    def call(self, job: Any, context: JobContext | None) -> Any:
        """Run the job inside its middleware."""
        return self.call_after(job, context, None)

    def call_after(self, job: Any, context: JobContext | None, before: Callable[[], None] | None) -> Any:
        """Run the job inside its middleware. `before` is called after all middleware, right before the handler."""
        assert context is not None
        instance = self._handler.instance(job, context)
        own = check_middleware(instance.middleware()) if self._handler.has_middleware else ()
        check_fits(own, self.name, is_async=self.is_async, timeout_ms=self.options.timeout_ms)
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
    result = handler()
    # A decorator can hide a coroutine function. Its coroutine must run before the middleware goes on.
    return asyncio.run(as_coroutine(result)) if inspect.isawaitable(result) else result


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
