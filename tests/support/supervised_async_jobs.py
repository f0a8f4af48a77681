"""Async handlers for the supervisor's tests. Apart from the others: with one of these a worker runs an event loop."""

from __future__ import annotations

import asyncio
import time

from delayq.jobs.context import JobContext
from delayq.jobs.function import job
from tests.support.supervised_jobs import let_go, note


@job("async_good")
async def async_good(context: JobContext, seconds: float = 0.0) -> None:
    note("start", context.id)
    await asyncio.sleep(seconds)
    note("end", context.id)


@job("async_held")
async def async_held(context: JobContext, seconds: float = 0.0) -> None:
    note("start", context.id)
    while not let_go():  # noqa: ASYNC110  (a file tells no event)
        await asyncio.sleep(0.01)
    await asyncio.sleep(seconds)
    note("end", context.id)


@job("async_tidy_up")
async def async_tidy_up(context: JobContext, seconds: float) -> None:
    note("start", context.id)
    try:
        await asyncio.sleep(seconds)
    finally:
        note("tidied", context.id)


@job("async_deaf")
async def async_deaf(context: JobContext, seconds: float) -> None:
    note("start", context.id)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            note("heard", context.id)
    note("end", context.id)


@job("async_spin")
async def async_spin(context: JobContext, seconds: float) -> None:
    note("start", context.id)
    time.sleep(seconds)  # noqa: ASYNC251  (a handler that never lets the loop go is the very thing under test)
    note("end", context.id)


@job("async_exit")
async def async_exit(context: JobContext) -> None:
    note("start", context.id)
    raise SystemExit(3)


@job("async_noop")
async def async_noop() -> None:
    return None
