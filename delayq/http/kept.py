"""Answers about all queues, for probes and pages: asked for anew while there are few queues, kept while there are many.

With more than `FEW` queues an answer takes tenths of a second. Then the last one is given at once while it is younger
than `STALE_S`, and a task asks anew when it is older than `FRESH_S`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sized
from typing import Final, Generic, TypeVar

from delayq.core.errors import DelayqError

T = TypeVar("T", bound=Sized)
FEW: Final = 200
FRESH_S: Final = 5.0
STALE_S: Final = 30.0


class Kept(Generic[T]):
    """The last answer of `ask`; its length tells how many queues it is about."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._lock = asyncio.Lock()
        self._last: T | None = None
        self._asked_s = 0.0
        self._task: asyncio.Task[None] | None = None

    async def last(self) -> T:
        """Return the answer, at most `STALE_S` old. Raises as `ask`."""
        if self._last is not None and len(self._last) <= FEW:
            return await self._anew()
        if (kept := self._kept()) is not None:
            return kept
        async with self._lock:  # one asks, the others wait for its answer
            kept = self._kept()
            return await self._anew() if kept is None else kept

    def warm(self) -> None:
        """Ask for the first time, in a task, so that the first caller need not wait for as long."""
        self._task = asyncio.create_task(self._behind())

    def stop(self) -> None:
        """End the task that asks."""
        if self._task is not None:
            self._task.cancel()

    def _kept(self) -> T | None:
        """Return the last answer if it may be given; a task asks anew where that is due."""
        age_s = time.monotonic() - self._asked_s
        if self._last is None or len(self._last) <= FEW or age_s >= STALE_S:
            return None
        if age_s >= FRESH_S and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._behind())
        return self._last

    async def _anew(self) -> T:
        asked_s = time.monotonic()
        answer = await self._ask()
        self._last, self._asked_s = answer, asked_s
        return answer

    async def _behind(self) -> None:
        """Ask while others read the last answer. An error is left to the callers that find it too old."""
        try:
            async with self._lock:
                await self._anew()
        except DelayqError:
            return
