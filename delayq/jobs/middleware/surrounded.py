"""A handler with middleware around it: the outermost first, the handler last.

If the handler or any of its middleware is async, the whole way is: plain middleware would otherwise hold a coroutine
where it expects a result. A plain handler then runs inside the event loop of whoever awaits; workers have one of
their own for that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from delayq.core.errors import ConfigError
from delayq.jobs.context import JobContext
from delayq.jobs.handler import Handler
from delayq.jobs.middleware.forms import Step, steps_of
from delayq.jobs.middleware.running_job import RunningJob
from delayq.jobs.opened import NOTHING, Opened
from delayq.jobs.stand_in import StandIn


class Surrounded(StandIn):
    """The `Handler` that stands in another one's place. `failed` is not surrounded: nothing is decided by it."""

    def __init__(self, inner: Handler, steps: Sequence[Step], tell: Callable[[object], None]) -> None:
        super().__init__(inner)
        self._tell = tell
        self._steps = tuple(steps)
        self._plain = not inner.is_async and all(step.plain for step in steps)
        refuse_mixture(inner, self._steps)

    def around(self, inner: Handler) -> Surrounded:
        """The same around another handler."""
        return Surrounded(inner, self._steps, self._tell)

    def open(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Opened:
        """The inner one's job, with everything around it."""
        opened = self.inner.open(data, context)
        return Opened(opened.fields, partial(self._pass, opened, context), opened.instance)

    def run(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Any:
        """Read the payload, then go through the middleware to the handler."""
        return self._pass(self.inner.open(data, context), context)

    def failed(self, data: msgspec.Raw, error: BaseException) -> Any:
        """Tell the inner one."""
        return self.inner.failed(data, error)

    def _pass(self, opened: Opened, context: Callable[[], JobContext]) -> Any:
        steps, plain, own = self._steps, self._plain, opened.middleware()
        if own is not NOTHING:  # a job that brings none says so with the same empty tuple each time
            steps += steps_of(own)
            plain = plain and all(step.plain for step in steps)
        job = RunningJob(self.inner.name, opened, context, self._tell)
        if plain:
            return _chained(steps, partial(_call, opened))(job)
        refuse_mixture(self.inner, steps)
        following: Callable[[RunningJob], Any] = partial(_acall, opened)
        for step in reversed(steps):
            following = partial(_astep, step, following)
        return following(job)


def surround(handler: Handler, around: Sequence[Step], tell: Callable[[object], None]) -> Handler:
    """The handler inside `around` and what it declares itself; the handler alone when that is nothing."""
    steps = (*around, *steps_of(handler.options.middleware or ()))
    return Surrounded(handler, steps, tell) if steps or handler.brings_middleware else handler


def refuse_mixture(handler: Handler, steps: Sequence[Step]) -> None:
    """Raises `ConfigError` for plain middleware that would have to wait for an async handler, or async middleware."""
    waiting = next((repr(step) for step in steps if not step.plain), "")
    for step in steps:
        if not step.waits and (handler.is_async or waiting):
            other = f"the async job {handler.name!r}" if handler.is_async else f"the async middleware {waiting}"
            raise ConfigError(
                f"The middleware {step!r} is plain and cannot wait for {other}.",
                hint="Give it an `async def ahandle` too, or make it a context manager.",
            )


def _chained(steps: Sequence[Step], last: Callable[[RunningJob], Any]) -> Callable[[RunningJob], Any]:
    following = last
    for step in reversed(steps):
        following = partial(_step, step, following)
    return following


def _step(step: Step, following: Callable[[RunningJob], Any], job: RunningJob) -> Any:
    return step.call(job, following)


async def _astep(step: Step, following: Callable[[RunningJob], Any], job: RunningJob) -> Any:
    return await step.acall(job, following)


def _call(opened: Opened, job: RunningJob) -> Any:
    result = opened.call()
    if result is not None and inspect.iscoroutine(result):
        result.close()
        raise ConfigError(
            f"The handler of {job.name!r} answered with a coroutine, which its middleware cannot wait for.",
            hint="Declare it with async def.",
        )
    return result


async def _acall(opened: Opened, job: RunningJob) -> Any:
    result = opened.call()
    return await result if inspect.isawaitable(result) else result
