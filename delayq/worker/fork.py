"""Forks a process that cannot outlive its parent, hears no signal meant for it, and never returns here.

The parent keeps the writing end of a pipe; the child reads its end from it, wherever the parent died. Where
the system can, the kernel kills the child at once as well. Each child is the head of a process group of
its own: a terminal's Ctrl-C does not reach it, and all that its handlers start can be ended with it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import logging
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

log = logging.getLogger("delayq.supervisor")

_PR_SET_PDEATHSIG = 1
_DEAF_TO = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
# Found before the fork: looking a library up in the child could meet a lock that nobody will open again.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Process:
    """A forked child: its number, our end of the pipe, and when it was made (monotonic seconds)."""

    pid: int
    pipe: int
    born: float

    def kill(self) -> None:
        """End it and everything in its group, at once. It may have ended already, but must not have been waited for."""
        for end in (os.killpg, os.kill):
            try:
                end(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def has_ended(self) -> bool:
        """Whether it has; its number stays its own until `wait`."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def is_stopped(self) -> bool:
        """Whether it is stopped by a signal or a debugger; False where the system has no /proc."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] in ("T", "t")

    def wait(self) -> int:
        """Wait for it, and end what it left in its group; its exit status. Closes our end of the pipe."""
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self.kill()
        os.close(self.pipe)
        return os.waitpid(self.pid, 0)[1]

    def tell(self) -> None:
        """Let `is_told` be true there. Unlike a signal it cannot come too early."""
        os.write(self.pipe, b".")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal. It may have ended already; until it was waited for, its number is nobody else's."""
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            log.debug("process %d ended before %s reached it", self.pid, number.name)


def fork(run: Callable[[int], None], siblings: Iterable[Process]) -> Process:
    """Run `run` in a new process, which ends when it returns; it is given the reading end of the pipe.

    `siblings` are the others made by this parent: the new process must not hold their pipes open.
    Raises `OSError` when the system has no room for one more.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ours = [sibling.pipe for sibling in siblings]
    reader, writer = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    parent = os.getpid()
    try:
        pid = os.fork()
        if pid == 0:
            _be_a_child(run, parent, reader, [*ours, writer])
    except OSError:
        os.close(writer)
        raise
    finally:
        os.close(reader)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        os.setpgid(pid, pid)
    except OSError:
        log.debug("process %d has made its group itself, or has ended", pid)
    return Process(pid, writer, time.monotonic())


def is_told(pipe: int) -> bool:
    """In the new process: whether its parent has told it something, or is gone."""
    return bool(select.select([pipe], [], [], 0.0)[0])


def _be_a_child(run: Callable[[int], None], parent: int, reader: int, close: Iterable[int]) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        _die_with(parent)
        gc.freeze()  # what the parent made is no garbage here, and to look at it would copy its pages
        _reset_signals()
        for number in close:
            os.close(number)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)  # a group in the background that reads a terminal would be stopped
        run(reader)
        code = 0
    except BaseException:
        log.exception("process %d ended by an error", os.getpid())
    finally:
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        finally:
            # Not sys.exit: what the parent has registered for its own end is not this process's to do.
            os._exit(code)


def _die_with(parent: int) -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in _DEAF_TO:
        # A function and not SIG_IGN, which programs started by a handler would inherit.
        signal.signal(number, _deaf)
    for number in (signal.SIGCHLD, signal.SIGCONT):
        signal.signal(number, signal.SIG_DFL)
    faulthandler.register(signal.SIGTTIN, file=2, all_threads=True, chain=False)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _deaf(number: int, frame: FrameType | None) -> None:
    """The supervisor speaks through shared memory; signals from elsewhere are meant for it."""
