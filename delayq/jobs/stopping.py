"""How a running job hears that its worker wants to end, so that it may come to a good end early.

    for row in rows:
        if context.stopping.is_set():
            raise Snooze("0s")                  # go on elsewhere, without an attempt

A worker that was told to stop waits for what runs, but not for ever.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

log = logging.getLogger("delayq.worker")

Callback: TypeAlias = Callable[[], object]


class Stopping:
    """Of one attempt. Everything may be called from any thread."""

    def __init__(self, event: threading.Event | None = None) -> None:
        self._event = event or threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callback] = []

    def is_set(self) -> bool:
        """Whether the worker wants to end."""
        return self._event.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Sleep until the worker wants to end, or so long at most; whether it does."""
        return self._event.wait(seconds)

    async def arrived(self) -> None:
        """The same awaited, without an end of its own."""
        loop, heard = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody awaits this any more
                loop.call_soon_threadsafe(heard.set)

        self.then(wake)
        await heard.wait()

    def then(self, callback: Callback) -> None:
        """Call this, in a thread of its own, when the worker wants to end; at once if it does.

        Nobody waits for it: when the job has ended by then, so may the process have.
        """
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        _start(callback)

    def fire(self) -> None:
        """Called by the worker once the event is set."""
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            _start(callback)


def _start(callback: Callback) -> None:
    def run() -> None:
        try:
            callback()
        except Exception:
            log.exception("a callback of a job that heard of the stop failed")

    threading.Thread(target=run, name="delayq-stopping", daemon=True).start()
