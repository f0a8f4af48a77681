"""What a process that runs until it is told hears: signals, and the end of its children.

TERM INT QUIT HUP   stop; a second one: at once
USR2, CONT          pause, go on
TTIN                say what runs where
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
_OTHERS = (signal.SIGUSR2, signal.SIGCONT, signal.SIGTTIN, signal.SIGCHLD)


@contextmanager
def leaving_when_told() -> Iterator[None]:
    """While a worker is made, which may take long: it holds nothing yet, so TERM ends it with 0, a second one by force.

    `Signals` takes over where it is entered, and may leave the process deaf to TERM: then it stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is _leave:
            signal.signal(signal.SIGTERM, before)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)  # the code that is being loaded may catch everything
    raise SystemExit(0)


class Signals:
    """While entered, signals are collected. `at_once` is called inside the handler, for what must not wait.

    With `last`, the process ends soon after the block: once a stop was heard, no later one tears it out of its end.
    `stopped_at` is when the first stop came, on the monotonic clock, however late somebody looks; inf before.
    """

    def __init__(self, at_once: Callable[[], None] = lambda: None, *, last: bool = False) -> None:
        self.stops = 0
        self.first_stop = ""
        """The name of the first signal that asked for an end."""
        self.stopped_at = float("inf")
        self.paused = False
        self.continued = False
        """Whether CONT was heard: the process may have been stopped until then. For the reader to clear."""
        self.dump_wanted = False
        self._at_once = at_once
        self._last = last
        self._before: dict[int, Any] = {}
        self._reader = self._writer = -1
        self._poll = select.poll()

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("Signals are heard in the main thread only, so what waits for them runs there.")
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        self._poll.register(self._reader, select.POLLIN)
        for number in (*STOPS, *_OTHERS):
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup
            self._before[number] = signal.signal(number, self._heard)
        self._fd_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        return self

    def __exit__(self, *error: object) -> None:
        signal.set_wakeup_fd(self._fd_before)
        for number, handler in self._before.items():
            # The default would end the process by the signal, and the exit code would no longer tell the reason.
            deaf = self._last and self.stops > 0 and number in STOPS
            signal.signal(number, signal.SIG_IGN if deaf else handler)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, seconds: float) -> None:
        """Wait for a signal, at most that long."""
        if self._poll.poll(max(0.0, seconds) * 1000):
            try:
                os.read(self._reader, 4096)
            except BlockingIOError:
                return

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if number in STOPS:
            self.stops += 1
            self.first_stop = self.first_stop or signal.Signals(number).name
            self.stopped_at = min(self.stopped_at, time.monotonic())
        elif number == signal.SIGUSR2:
            self.paused = True
        elif number == signal.SIGCONT:
            self.paused, self.continued = False, True
        elif number == signal.SIGTTIN:
            self.dump_wanted = True
        if number != signal.SIGCHLD:
            self._at_once()
