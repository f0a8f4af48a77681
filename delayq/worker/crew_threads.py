"""Sync handlers in several threads of one process: cheap company for handlers that wait much.

A thread can be interrupted only when it runs Python: a handler that sleeps or waits inside C hears of
its timeout afterwards. Then the supervisor ends the whole process; what ran beside it is handed back.
"""

from __future__ import annotations

import ctypes
import inspect
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from delayq.core.interrupts import JobInterrupted
from delayq.core.outcome import GiveUp
from delayq.jobs.failing import tell_failed
from delayq.worker.attempt import Attempt, Attempts
from delayq.worker.coroutines import Coroutines
from delayq.worker.held import Held
from delayq.worker.holding import Holding

_Work = tuple[Held, Attempt] | None
_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc


class _Desk:
    """What one thread works at. `aimed` is set before an exception is sent, `sent` says whether it was."""

    __slots__ = ("aimed", "at", "coroutines", "sent")

    def __init__(self) -> None:
        self.at: Held | None = None
        self.aimed: Held | None = None
        self.sent: bool | None = None
        self.coroutines = Coroutines()  # for a plain function that answers with a coroutine


class Threads:
    """`count` threads; `ring` is called whenever one of them has become free."""

    def __init__(self, holding: Holding, attempts: Attempts, count: int, ring: Callable[[], None]) -> None:
        self._holding = holding
        self._attempts = attempts
        self._ring = ring
        self._count = count
        self._given = 0
        self._ended = [0] * count
        self._work: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._desks: dict[int, _Desk] = {}
        for number in range(count):
            threading.Thread(target=self._run, args=(number,), name=f"delayq-job-{number}", daemon=True).start()

    def room(self) -> int:
        """Threads without work."""
        return self._count - (self._given - sum(self._ended))

    def start(self, held: Held, attempt: Attempt) -> None:
        """Give it to the next free thread."""
        self._given += 1
        self._work.put((held, attempt))

    def flush(self) -> None:
        """Nothing is ever kept."""

    def interrupt(self, held: Held, error: BaseException) -> None:
        """Let the thread raise at its next step in Python; the class travels, `error` replaces what arrives."""
        held.interrupt = error
        for ident, desk in list(self._desks.items()):
            if desk.at is held:
                desk.sent, desk.aimed = None, held
                # It may have ended between the look and here: then `_absorb` has seen `aimed` and waits for our word.
                still = desk.at is held
                if still:
                    _raise_in(ctypes.c_ulong(ident), ctypes.py_object(type(error)))
                desk.sent = still

    def close(self) -> None:
        """Free threads end; the others are daemons."""
        for _ in range(self._count):
            self._work.put(None)

    def _run(self, number: int) -> None:
        desk = self._desks[threading.get_ident()] = _Desk()
        while (work := self._work.get()) is not None:
            held, attempt = work
            end = _End()
            self._guarded(desk, held, attempt, end)
            outcome = self._attempts.conclude(attempt, end.result, end.error)
            if isinstance(outcome, GiveUp):
                tell_failed(attempt.handler, attempt.envelope, outcome, desk.coroutines.run)
            self._holding.finish(held, outcome)
            self._ended[number] += 1
            self._ring()

    def _guarded(self, desk: _Desk, held: Held, attempt: Attempt, end: _End) -> None:
        """Run it. The exception of an interruption may arrive anywhere in here, and nowhere else."""
        try:
            try:
                desk.at = held
                end.result = attempt.call()
                if end.result is not None and inspect.isawaitable(end.result):
                    end.result = desk.coroutines.run(end.result)
                end.known = True
            except BaseException as raised:  # noqa: BLE001  (a handler may raise anything; it costs an attempt, not the worker)
                end.error = raised
                end.known = True
            desk.at = None
            _absorb(desk, held)
        except JobInterrupted as late:
            desk.at = None
            if not end.known:
                end.error = late


class _End:
    """How a call ended; filled in where an exception may arrive between any two steps."""

    __slots__ = ("error", "known", "result")

    def __init__(self) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.known = False


def _absorb(desk: _Desk, held: Held) -> None:
    """When an exception was aimed at this attempt, wait until it was sent; if it may be under way, let it arrive here.

    Else it would hit the next attempt of this thread. The one who aims looks at `at` after writing `aimed`; this
    thread looks at `aimed` after clearing `at`. So one of the two sees the other.

    Whether it is still under way nobody can ask, so another one takes its place, and that is waited for. Taking it back
    (NULL in place of a class) leaves CPython 3.11 looking for it at each step, and for ever under a profiler.
    """
    if desk.aimed is held:
        while desk.sent is None:
            time.sleep(0.0005)
        if desk.sent:
            _raise_in(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(JobInterrupted))
            while True:
                time.sleep(0.0005)
