"""Runs the coroutine of a handler in an event loop of its own."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Any


def run_in_own_loop(
    awaitable: Awaitable[Any], *, context: Context | None = None, clock: Callable[[], float] = time.monotonic
) -> Any:
    """Run an awaitable in a new event loop, and return its result.

    `context`: the context variables; None = a copy of the current ones. `clock`: the clock of the loop. In tests, a
    library may freeze `time.monotonic`, which the loop would read itself, and no `asyncio.sleep` would then end.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        if type(loop).time is asyncio.BaseEventLoop.time:  # other loops, such as uvloop, have a clock of their own
            vars(loop)["time"] = clock
        return runner.run(_as_coroutine(awaitable), context=context)


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
