"""Handlers that talk with their worker, and a gate. What they wait for are files beside the ledger."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

from delayq.core.signals import Snooze
from delayq.jobs.context import JobContext
from delayq.jobs.function import job
from delayq.jobs.gates import gate
from tests.support.supervised_jobs import note


def beside(name: str) -> Path:
    """A file beside the ledger."""
    return Path(os.environ["LEDGER"]).with_name(name)


def _until(name: str) -> None:
    while not beside(name).exists():
        time.sleep(0.01)


@gate
def not_now() -> bool:
    if beside("broken").exists():
        raise OSError("the gate is broken")
    return not beside("closed").exists()


@job("tells")
def tells(context: JobContext) -> None:
    """Tells ten words, the last of them twice with a partial result, and waits."""
    note("start", context.id)
    for done in range(1, 11):
        context.progress(done, 10, f"row {done}")
    context.partial({"rows": [1, 2]})
    _until("more")
    context.progress(7)
    _until("go")


@job("async_tells")
async def async_tells(context: JobContext) -> None:
    note("start", context.id)
    context.progress(0.5, 1)
    while not beside("go").exists():  # noqa: ASYNC110  (a file tells no event)
        await asyncio.sleep(0.01)


@job("tells_nonsense", tries=1)
def tells_nonsense(context: JobContext) -> None:
    context.progress(-1)


@job("interruptible")
def interruptible(context: JobContext) -> None:
    """Goes on elsewhere when the worker wants to end."""
    called = threading.Event()
    context.stopping.then(called.set)
    note("start", context.id)
    if context.stopping.wait(60) and called.wait(10):
        note("heard", context.id)
        raise Snooze("0s")


@job("async_interruptible")
async def async_interruptible(context: JobContext) -> None:
    note("start", context.id)
    await context.stopping.arrived()
    note("heard", context.id)
    raise Snooze("0s")
