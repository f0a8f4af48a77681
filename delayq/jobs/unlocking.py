"""A handler whose job gives up its lock when it starts: behind all middleware, right before the handler is called.

The script is asked wherever the handler runs: awaited in an event loop, blocking in a thread. When nobody can be asked,
the handler does not run, and no attempt is spent.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn

import msgspec

from delayq.core.errors import DelayqError
from delayq.core.limiting import Limits, Unlock, Unlocked
from delayq.core.signals import Snooze
from delayq.jobs.context import JobContext
from delayq.jobs.handler import Handler
from delayq.jobs.middleware.surrounded import Surrounded
from delayq.jobs.opened import Opened
from delayq.jobs.stand_in import StandIn

log = logging.getLogger("delayq.jobs")

AWAY: Final = "5s"


class Unlocking(StandIn):
    """The `Handler` that stands in another one's place for one attempt."""

    def __init__(self, inner: Handler, unlock: Unlock, limits: Limits) -> None:
        super().__init__(inner)
        self._unlock = unlock
        self._limits = limits

    def open(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Opened:
        """The inner one's job; its call frees the lock first."""
        opened = self.inner.open(data, context)
        return Opened(opened.fields, partial(self._call, opened.call), opened.instance, opened.middleware)

    def run(self, data: msgspec.Raw, context: Callable[[], JobContext]) -> Any:
        """Free the lock, then run the inner one."""
        return self._call(partial(self.inner.run, data, context))

    def failed(self, data: msgspec.Raw, error: BaseException) -> Any:
        """Tell the inner one."""
        return self.inner.failed(data, error)

    def _call(self, handle: Callable[[], Any]) -> Any:
        if self.is_async or _in_a_loop():
            return self._acall(handle)
        try:
            answer = self._limits.ask(self._unlock)
        except DelayqError as error:
            self._put_off(error)
        self._heed(answer)
        return handle()

    async def _acall(self, handle: Callable[[], Any]) -> Any:
        try:
            answer = await self._limits.aask(self._unlock)
        except DelayqError as error:
            self._put_off(error)
        self._heed(answer)
        result = handle()
        return await result if inspect.isawaitable(result) else result

    def _heed(self, answer: Unlocked) -> None:
        if answer is Unlocked.FENCED:
            who = self._unlock.who
            log.warning("job %s (%s) does not start here: it was taken back", who.id, self.name)
            raise Snooze(AWAY, reason="it was taken back before it started")

    def _put_off(self, error: DelayqError) -> NoReturn:
        who = self._unlock.who
        log.warning("job %s (%s) is snoozed: its unique key could not be freed: %s", who.id, self.name, error)
        raise Snooze(AWAY, reason="its unique key could not be freed") from error


def unlocking(handler: Handler, unlock: Unlock, limits: Limits) -> Handler:
    """The handler for one attempt; what surrounds it stays outside."""
    if isinstance(handler, Surrounded):
        return handler.around(Unlocking(handler.inner, unlock, limits))
    return Unlocking(handler, unlock, limits)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
