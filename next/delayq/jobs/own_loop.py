"""Runs the coroutine of a handler in an event loop of its own."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any, Final

_monotonic: Final = (time.monotonic,)
"""A tuple, because freezegun replaces clocks that are attributes of a module."""


def run_in_own_loop(awaitable: Awaitable[Any], *, context: Context | None = None) -> Any:
    """Run an awaitable in a new event loop, and return its result.

    `context`: the context variables; None = a copy of the current ones. The loop gets a clock that is never frozen. In
    tests, a library may freeze `time.monotonic`, which a loop normally reads, and no `asyncio.sleep` would then end.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        if type(loop).time is asyncio.BaseEventLoop.time:  # other loops, such as uvloop, have a clock of their own
            vars(loop)["time"] = _running_clock()
        return runner.run(_as_coroutine(awaitable), context=context)


def _running_clock() -> Callable[[], float]:
    """Return a clock that is not frozen, even if this module was imported while freezegun had frozen the clocks."""
    clock: Callable[[], float] = getattr(sys.modules.get("freezegun.api"), "real_monotonic", _monotonic[0])
    return clock


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
