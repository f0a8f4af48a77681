"""Awaits for crews that are not async: what a plain function answered with, an async `failed`; one after another, on an
event loop that lives as long as the worker.

So what a handler keeps on the loop (a pool of connections, say) is there for the next one. What it leaves *running*
is not: a job ends when its handler does, and a task that went on would stand still until the next async job and then
run under that job's name. Such tasks are cancelled, as `asyncio.run` does, and named in the log. Unlike there, nobody
waits for ever for one that ignores it: a worker must be able to end.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable
from typing import Any

log = logging.getLogger("delayq.worker")

LEFTOVERS_S = 1.0


class Coroutines:
    """Awaits for one synchronous caller."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """The awaitable's result; raises what it raises. Context variables it sets are gone afterwards."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        loop = self._loop
        task = loop.create_task(_awaited(awaitable), context=contextvars.copy_context())
        try:
            return loop.run_until_complete(task)
        finally:
            if task.done() and not task.cancelled():
                task.exception()  # seen: asyncio would log it a second time
            self._end_leftovers(loop)  # the task itself too, when the loop was interrupted from outside

    def close(self) -> None:
        """Cancel what is left and close the loop, if there is one."""
        loop, self._loop = self._loop, None
        if loop is not None:
            self._end_leftovers(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    def _end_leftovers(self, loop: asyncio.AbstractEventLoop) -> None:
        leftovers = asyncio.all_tasks(loop)
        if not leftovers:
            return
        names = ", ".join(sorted(task.get_name() for task in leftovers))
        log.warning("an async handler left %d tasks running; they are cancelled: %s", len(leftovers), names[:500])
        for task in leftovers:
            task.cancel()
        _, stubborn = loop.run_until_complete(asyncio.wait(leftovers, timeout=LEFTOVERS_S))
        if stubborn:
            log.error("%d of them ignored that; they stand still from now on", len(stubborn))


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
