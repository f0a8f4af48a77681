"""Handlers for the supervisor's tests: well-behaved, slow, violent and deaf ones. Loaded by `supervised`."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from delayq.jobs.context import JobContext
from delayq.jobs.function import job

_holding_the_lock = ctypes.PyDLL(None)  # a PyDLL does not let the interpreter's lock go during a call


def note(word: str, job_id: str) -> None:
    """One line in the ledger; short appends of one write are not torn."""
    line = f"{word} {job_id} {os.getpid()} {time.monotonic():.6f}\n"
    with Path(os.environ["LEDGER"]).open("a", encoding="utf-8") as ledger:
        ledger.write(line)


def let_go() -> bool:
    """Whether the test has said so: a file beside the ledger."""
    return Path(os.environ["LEDGER"]).with_name("go").exists()


@job("noop")
def noop() -> None:
    return None


@job("good")
def good(context: JobContext, seconds: float = 0.0) -> None:
    note("start", context.id)
    time.sleep(seconds)
    note("end", context.id)


@job("bad")
def bad(context: JobContext) -> None:
    note("start", context.id)
    raise ValueError("bad")


@job("held")
def held(context: JobContext, seconds: float = 0.0) -> None:
    """Works on until the test lets it go, and that long after."""
    note("start", context.id)
    while not let_go():
        time.sleep(0.01)
    time.sleep(seconds)
    note("end", context.id)


@job("spin")
def spin(context: JobContext, seconds: float) -> None:
    note("start", context.id)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    note("end", context.id)


@job("hold_the_lock")
def hold_the_lock(context: JobContext, seconds: float) -> None:
    note("start", context.id)
    _holding_the_lock.usleep(int(seconds * 1_000_000))
    note("end", context.id)


@job("deaf")
def deaf(context: JobContext, seconds: float) -> None:
    note("start", context.id)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            time.sleep(0.01)
        except BaseException:  # noqa: BLE001  (the very thing under test)
            note("heard", context.id)
    note("end", context.id)


@job("kill_self")
def kill_self(context: JobContext) -> None:
    note("start", context.id)
    os.kill(os.getpid(), signal.SIGKILL)


@job("violent", tries=1)
def violent(context: JobContext, kind: str) -> None:
    note("start", context.id)
    if kind == "exit":
        sys.exit(3)
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "memory":
        raise MemoryError
    if kind == "generator":
        raise GeneratorExit
    if kind == "recursion":
        violent(context, kind)
    if kind == "huge":
        raise ValueError("\0\x1b[31m" + "x" * 10_000_000)


@job("result", retention="1h")
def result(context: JobContext, size: int) -> str:
    note("start", context.id)
    return "x" * size


@job("hasty", timeout="300ms", on_timeout="fail")
def hasty(context: JobContext, seconds: float) -> None:
    note("start", context.id)
    time.sleep(seconds)


@job("tidy_up")
def tidy_up(context: JobContext, seconds: float) -> None:
    note("start", context.id)
    try:
        time.sleep(seconds)
    finally:
        note("tidied", context.id)


@job("tidy_up_in_python")
def tidy_up_in_python(context: JobContext, seconds: float) -> None:
    """As `tidy_up`, but it comes back to the interpreter often, where a thread can be interrupted."""
    note("start", context.id)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            time.sleep(0.01)
    finally:
        note("tidied", context.id)


@job("polite")
def polite(context: JobContext) -> None:
    note("start", context.id)
    try:
        while not context.stop_asked():
            time.sleep(0.01)
    except BaseException:  # noqa: BLE001  (it is interrupted softly too, and ends as it likes)
        note("heard", context.id)
    else:
        note("heard", context.id)


@job("orphan")
def orphan(context: JobContext) -> None:
    """Leaves a process behind whose parent is gone, and which then ends."""
    note("start", context.id)
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            time.sleep(0.3)
            note("gone", context.id)
        os._exit(0)
    os.wait()


@job("freeze")
def freeze(context: JobContext, seconds: float) -> None:
    """Stops its own process for a while, as a machine that is short of everything may."""
    note("start", context.id)
    if os.fork() == 0:
        time.sleep(seconds)
        os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGSTOP)
    note("end", context.id)


@job("held_with")
def held_with(context: JobContext, load: str = "") -> None:
    """Works on until the test lets it go; `load` makes its payload large."""
    note("start", context.id)
    while not let_go():
        time.sleep(0.01)
    note("end", context.id)
