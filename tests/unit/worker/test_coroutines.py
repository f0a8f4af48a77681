"""Async handlers on an event loop that outlives them."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Iterator
from typing import Any

import pytest

from delayq.worker.coroutines import LEFTOVERS_S, Coroutines
from tests.support.machine import fair_clock


@pytest.fixture
def coroutines() -> Iterator[Coroutines]:
    made = Coroutines()
    yield made
    made.close()


def test_results_and_errors_come_out(coroutines: Coroutines) -> None:
    async def work(value: int) -> int:
        await asyncio.sleep(0)
        if value < 0:
            raise ValueError("negative")
        return value

    assert coroutines.run(work(3)) == 3
    with pytest.raises(ValueError, match="negative"):
        coroutines.run(work(-1))
    assert coroutines.run(work(4)) == 4


def test_what_one_job_keeps_on_the_loop_the_next_finds(coroutines: Coroutines) -> None:
    kept: dict[str, Any] = {}

    async def work() -> bool:
        lock = kept.setdefault("lock", asyncio.Lock())
        loop = kept.setdefault("loop", asyncio.get_running_loop())
        async with lock:
            return loop is asyncio.get_running_loop()

    assert coroutines.run(work())
    assert coroutines.run(work())


def test_context_variables_do_not_leak_into_the_next_job(coroutines: Coroutines) -> None:
    order: contextvars.ContextVar[str] = contextvars.ContextVar("order", default="none")

    async def work() -> str:
        before = order.get()
        order.set("mine")
        return before

    assert coroutines.run(work()) == "none"
    assert coroutines.run(work()) == "none"


def test_what_a_handler_leaves_running_is_cancelled_and_named(
    coroutines: Coroutines, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    async def forgotten() -> None:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def work() -> str:
        task = asyncio.create_task(forgotten(), name="mail-sender")
        await asyncio.sleep(0)
        return task.get_name()

    assert coroutines.run(work()) == "mail-sender"
    assert ended == ["cancelled"]
    assert "mail-sender" in caplog.text


def test_a_task_that_ignores_its_cancellation_stops_nobody(
    coroutines: Coroutines, caplog: pytest.LogCaptureFixture
) -> None:
    free: list[asyncio.Future[None]] = []

    async def stubborn() -> None:
        future = asyncio.get_running_loop().create_future()
        free.append(future)
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError:
                continue

    async def work() -> None:
        free.append(asyncio.create_task(stubborn()))
        await asyncio.sleep(0)

    started = fair_clock()
    coroutines.run(work())
    assert fair_clock() - started < LEFTOVERS_S + 2
    assert "ignored" in caplog.text

    async def release() -> None:
        free[-1].set_result(None)
        await asyncio.sleep(0)

    coroutines.run(release())


def test_the_loop_is_usable_after_a_handler_raised_what_ends_loops(coroutines: Coroutines) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    async def work() -> int:
        await asyncio.sleep(0)
        return 1

    with pytest.raises(SystemExit):
        coroutines.run(leave())
    assert coroutines.run(work()) == 1


def test_what_was_interrupted_is_ended_before_anything_else_runs(coroutines: Coroutines) -> None:
    """A timeout tears the thread out of the loop; the handler still gets to clean up, and is gone then."""
    cleaned: list[str] = []

    async def work() -> None:
        def tear() -> None:
            raise KeyboardInterrupt

        asyncio.get_running_loop().call_soon(tear)
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            cleaned.append("cleaned up")
            raise

    with pytest.raises(KeyboardInterrupt):
        coroutines.run(work())
    assert cleaned == ["cleaned up"]


def test_closing_what_was_never_used() -> None:
    Coroutines().close()
