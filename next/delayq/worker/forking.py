"""Forks processes, sends them signals, and collects dead ones.

The parent must have only one thread. Locks that other threads hold during a fork would stay locked in the new process.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

from delayq.core.errors import ConfigError
from delayq.core.full_pipes import PATIENCE, takes_output

if not (hasattr(os, "fork") and hasattr(signal, "sigtimedwait")):
    raise ConfigError(
        f"Workers do not run on this platform ({sys.platform}), because it has no fork or no sigtimedwait.",
        hint="Run `delayq work` and `delayq move` on Linux. Clients and the other commands work here.",
    )


def is_ignored(number: int) -> bool:
    """Return True if the process ignores a signal, as `nohup` makes it ignore HUP."""
    return signal.getsignal(number) is signal.SIG_IGN


WATCHED: Final = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR2,
    signal.SIGCONT,
    signal.SIGCHLD,
    *([] if is_ignored(signal.SIGHUP) else [signal.SIGHUP]),
}
"""Signals that the supervisor waits for. They are blocked, so that they arrive only while the supervisor waits."""

ONLY_FOR_PARENT: Final = WATCHED & {signal.SIGUSR2, signal.SIGHUP, signal.SIGQUIT}
"""Signals that forked processes survive: somebody may send them to all processes of a worker, and the parent reacts."""

WAKE_SIGNAL: Final = signal.SIGURG
"""The supervisor sends this signal to a child, so that a waiting child reads its orders. The watchdog of a child sends
this signal to the main thread of the child, to interrupt a handler there.

SIGURG was chosen because processes ignore SIGURG by default, and handlers rarely use it, unlike ALRM, USR1 and USR2.
"""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_libc: Final = ctypes.CDLL(None, use_errno=True)


def fork(main: Callable[[], int], *, title: str) -> int:
    """Run `main` in a new process and return the id of the process.

    The exit code of the process is the result of `main`, or 70 if `main` raises an exception.

    `title`: name of the process in `top` and `ps -o comm` (on Linux), at most 15 letters.

    The new process leads its own process group. So Ctrl-C in a terminal reaches only the parent, and KILL also reaches
    processes that a handler started. On Linux, the new process gets SIGTERM when its parent dies. The signals in
    `WATCHED` are unblocked. Those in `ONLY_FOR_PARENT` have no effect, and the others have their default effect.
    """
    _flush()
    parent = os.getpid()
    process_id = os.fork()
    if process_id:
        _set_group(process_id)
        return process_id
    code = 70
    try:
        _set_group(0)
        _die_with_parent(parent)
        _prctl(_PR_SET_NAME, title.encode())
        for number in WATCHED:
            signal.signal(number, without_effect if number in ONLY_FOR_PARENT else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        code = main()
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            _flush()
        finally:
            os._exit(code)  # never return into the code of the parent


def without_effect(*_: object) -> None:
    """Do nothing at a signal. Unlike SIG_IGN, this function is not inherited by programs that a job starts."""


def exit_as_copy(error: BaseException | None) -> NoReturn:
    """End this process, which a handler has forked.

    The exit code is as in any Python program: 0 after a return, 1 after an exception, and after `sys.exit`, the code
    that it was given. `error`: the exception that the handler raised in the copy; None = the handler returned.
    """
    code: int | str | None = 0
    try:
        if isinstance(error, SystemExit):
            code = error.code
        elif error is not None:
            traceback.print_exception(error)
            code = 1
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
        _flush()
    finally:
        os._exit((code or 0) & 0xFF if isinstance(code, int | None) else 1)


def _flush() -> None:
    """Flush the standard streams. Ignore errors of a closed or full stream, so that they do not end the process.

    If nobody reads a full pipe, the output is dropped.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and takes_output(stream, within=PATIENCE):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()


def reap() -> list[tuple[int, int]]:
    """Collect dead processes. Return the id and exit code of each; a code -N means that signal N killed it."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            process_id, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if process_id == 0:
            return ended
        ended.append((process_id, os.waitstatus_to_exitcode(status)))


def send(process_id: int, number: signal.Signals) -> None:
    """Send a signal to a process that has not been collected yet. KILL goes to the process group of the process."""
    with contextlib.suppress(ProcessLookupError):  # it is dead and will soon be collected
        if number is signal.SIGKILL:
            os.killpg(process_id, number)
        else:
            os.kill(process_id, number)


def is_stopped(process_id: int) -> bool:
    """Return True if a process is stopped by SIGSTOP or by a debugger. Outside Linux, return False."""
    try:
        with open(f"/proc/{process_id}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False


def wait_for_signal(seconds: float) -> int | None:
    """Wait up to `seconds` for a watched signal. Return its number, or None if no signal came."""
    info = signal.sigtimedwait(WATCHED, seconds)
    return info.si_signo if info else None


def wait_for_end(process_id: int, seconds: float) -> None:
    """Wait for the end of a child process, and collect it. Return after `seconds` at the latest."""
    until = time.monotonic() + seconds
    with contextlib.suppress(ChildProcessError):  # it was collected before
        while os.waitpid(process_id, os.WNOHANG) == (0, 0) and time.monotonic() < until:
            time.sleep(0.005)


@contextlib.contextmanager
def without_term() -> Iterator[None]:
    """Block TERM during a `with` block. If TERM arrives, it takes effect at the end of the `with` block."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _set_group(process_id: int) -> None:
    # Parent and child both do this, so that it is done before either continues. The second call may fail.
    with contextlib.suppress(OSError):
        os.setpgid(process_id, process_id)


def _die_with_parent(parent: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:
        os._exit(70)


def _prctl(option: int, value: int | bytes) -> None:
    prctl = getattr(_libc, "prctl", None)
    if prctl is not None:
        prctl(option, value)
