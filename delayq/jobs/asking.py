"""A handler that asks something before it is called, for one attempt.

The question is put wherever the handler runs: awaited in an event loop, blocking in a thread. When nobody can be asked,
the handler does not run, and no attempt is spent.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, NoReturn, TypeVar

import msgspec

from delayq.core.errors import DelayqError
from delayq.core.limiting import Limits, Question
from delayq.core.signals import Snooze
from delayq.jobs.context import JobContext
from delayq.jobs.handler import Handler
from delayq.jobs.opened import Opened
from delayq.jobs.stand_in import StandIn

T = TypeVar("T")
log = logging.getLogger("delayq.jobs")

AWAY: Final = "5s"


class Asking(StandIn, Generic[T]):
    """The `Handler` that stands in another one's place; derived ones say what the answer means."""

    unasked = ""
    """What could not be done when nobody answers, for people."""

    def __init__(self, inner: Handler, question: Question[T], limits: Limits) -> None:
        super().__init__(inner)
        self.question = question
        self._limits = limits

    @abstractmethod
    def heed(self, answer: T) -> None:
        """Raise what keeps the handler from being called, if anything does."""

    def open(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Opened:
        """The inner one's job; its call asks first."""
        opened = self.inner.open(data, context)
        return Opened(opened.fields, partial(self._call, opened.call), opened.instance, opened.middleware)

    def run(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Any:
        """Ask, then run the inner one."""
        return self._call(partial(self.inner.run, data, context))

    def failed(self, data: msgspec.Raw, error: BaseException) -> Any:
        """Tell the inner one."""
        return self.inner.failed(data, error)

    def _call(self, handle: Callable[[], Any]) -> Any:
        if self.is_async or _in_a_loop():
            return self._acall(handle)
        try:
            answer = self._limits.ask(self.question)
        except DelayqError as error:
            self._put_off(error)
        self.heed(answer)
        return handle()

    async def _acall(self, handle: Callable[[], Any]) -> Any:
        try:
            answer = await self._limits.aask(self.question)
        except DelayqError as error:
            self._put_off(error)
        self.heed(answer)
        result = handle()
        return await result if inspect.isawaitable(result) else result

    def _put_off(self, error: DelayqError) -> NoReturn:
        log.warning("job %s (%s) is snoozed: %s: %s", self.question.who.id, self.name, self.unasked, error)
        raise Snooze(AWAY, reason=self.unasked) from error


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
