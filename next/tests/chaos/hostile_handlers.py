"""An application whose handlers do what no handler should. Only workers import it.

HANDLERS_LOG is the file for what they note, EXECUTOR `event loop` makes all of them coroutine functions, HANG the
timeout of those that never end, and LIMIT that of all others.
"""

# ruff: noqa: RUF006 -- tasks are left behind on purpose

import asyncio
import ctypes
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from delayq import JobContext, job

LOG = os.open(os.environ["HANDLERS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
IS_ASYNC = os.environ["EXECUTOR"] == "event loop"
HANG = os.environ["HANG"]
LIMIT = os.environ["LIMIT"]

ADDRESS_SPACE = 1_000_000_000
"""Bytes that a process may take. The worker replaces a child much sooner: --memory 200."""

PIECE = 8_000_000

resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))

kept: list[bytes] = []

Plain = Callable[[JobContext], None]


def declare(name: str, timeout: str = LIMIT) -> Callable[[Plain], Plain]:
    """Declare a handler for the executor of this run. It notes that it was started."""

    def decorate(function: Plain) -> Plain:
        def handler(context: JobContext) -> None:
            note("started", context)
            function(context)

        async def async_handler(context: JobContext) -> None:
            handler(context)

        declared = job(name, queue="q", tries=2, backoff="100ms", timeout=timeout)
        declared(async_handler) if IS_ASYNC else declared(handler)
        return function

    return decorate


def note(what: str, context: JobContext) -> None:
    os.write(LOG, f"{what} {context.id} {os.getpid()} {context.attempt} {context.recoveries}\n".encode())


@declare("innocent")
def innocent(context: JobContext) -> None:
    pass


@declare("raises")
def raises(context: JobContext) -> None:
    raise ValueError("no")


@declare("exits")
def exits(context: JobContext) -> None:
    sys.exit("reason")


@declare("recurses")
def recurses(context: JobContext) -> None:
    recurses(context)


@declare("eats.memory")
def eats_memory(context: JobContext) -> None:
    """Take pieces until the system gives no more."""
    mine = []
    while True:
        mine.append(b"x" * PIECE)


@declare("grows")
def grows(context: JobContext) -> None:
    """Make the process larger than --memory, and return."""
    kept.extend(b"x" * PIECE for _ in range(30))


@declare("dies")
def dies(context: JobContext) -> None:
    os._exit(3)


@declare("kills.itself")
def kills_itself(context: JobContext) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@declare("forks")
def forks(context: JobContext) -> None:
    if os.fork():
        os.wait()


@declare("starts.threads")
def starts_threads(context: JobContext) -> None:
    threading.Thread(target=time.sleep, args=(100,)).start()


@declare("hangs.in.C", HANG)
def hangs_in_c(context: JobContext) -> None:
    ctypes.CDLL(None).sleep(1000)


@declare("holds.the.GIL", HANG)
def holds_the_gil(context: JobContext) -> None:
    ctypes.PyDLL(None).sleep(1000)


@declare("swallows", HANG)
def swallows(context: JobContext) -> None:
    while True:
        with suppress(BaseException):
            time.sleep(1000)


@declare("sleeps", HANG)
def sleeps(context: JobContext) -> None:
    time.sleep(1000)


@declare("grows.and.stays", HANG)
def grows_and_stays(context: JobContext) -> None:
    """Make the process larger than --memory, and go on."""
    grows(context)
    time.sleep(1000)


if IS_ASYNC:

    @job("leaves.tasks", queue="q", retention="1h", timeout=LIMIT)
    async def leaves_tasks(context: JobContext) -> None:
        """Leave a task that takes a while to clean up. The job must not end before."""

        async def left() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(0.3)
                os.write(LOG, f"cleaned {context.id} {time.time_ns() // 1_000_000} 0 0\n".encode())

        asyncio.create_task(left())
        await asyncio.sleep(0)

    @job("leaves.a.stubborn.task", queue="q", timeout=LIMIT)
    async def leaves_a_stubborn_task(context: JobContext) -> None:
        async def left() -> None:
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(1000)

        asyncio.create_task(left())
        await asyncio.sleep(0)

    @job("awaits", queue="q", tries=2, backoff="100ms", timeout=HANG)
    async def awaits(context: JobContext) -> None:
        note("started", context)
        await asyncio.sleep(1000)
