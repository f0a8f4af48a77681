"""Async handlers, many at once in one event loop, which has a thread of its own.

The main thread reads and settles meanwhile. An interruption is a `cancel()` of the task; a handler that
swallows it, or never awaits, is ended by the supervisor together with the process.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from delayq.core.outcome import GiveUp
from delayq.jobs.failing import atell_failed
from delayq.worker.attempt import Attempt, Attempts
from delayq.worker.held import Held
from delayq.worker.holding import Holding

log = logging.getLogger("delayq.worker")


class EventLoop:
    """At most `places` handlers at once; `ring` is called when some have ended."""

    def __init__(self, holding: Holding, attempts: Attempts, places: int, ring: Callable[[], None]) -> None:
        self._holding = holding
        self._attempts = attempts
        self._ring = ring
        self._places = places
        self._given = 0
        self._ended = 0
        self._ringing = False
        self._batch: list[tuple[Held, Attempt]] = []
        self._tasks: dict[Held, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._closed = False
        threading.Thread(target=self._run, name="delayq-loop", daemon=True).start()

    def room(self) -> int:
        """Free places."""
        return self._places - (self._given - self._ended)

    def start(self, held: Held, attempt: Attempt) -> None:
        """Keep it until `flush`: one call into the loop's thread for a whole batch."""
        self._given += 1
        self._batch.append((held, attempt))

    def flush(self) -> None:
        """Begin with the batch."""
        if self._batch:
            batch, self._batch = self._batch, []
            self._loop.call_soon_threadsafe(self._begin, batch)

    def interrupt(self, held: Held, error: BaseException) -> None:
        """Cancel the task."""
        held.interrupt = error
        self._loop.call_soon_threadsafe(self._cancel, held)

    def close(self) -> None:
        """Stop the loop; tasks that still run are left behind."""
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closed:
            try:
                self._loop.run_forever()
            except BaseException:
                # A task of the handler's own may raise SystemExit through the loop; that is no reason for it to stop.
                log.exception("something a handler started raised through the event loop; the loop goes on")

    def _begin(self, batch: list[tuple[Held, Attempt]]) -> None:
        create = self._loop.create_task
        for held, attempt in batch:
            self._tasks[held] = create(self._one(held, attempt))

    def _cancel(self, held: Held) -> None:
        task = self._tasks.get(held)
        if task is not None:
            # One turn later: a task that is cancelled before its first step never runs, and nobody would finish it.
            self._loop.call_soon(task.cancel)

    async def _one(self, held: Held, attempt: Attempt) -> None:
        result: object = None
        error: BaseException | None = None
        try:
            result = await attempt.call()
        except BaseException as raised:  # noqa: BLE001  (a handler may raise anything; it costs an attempt, not the worker)
            error = raised
        del self._tasks[held]
        outcome = self._attempts.conclude(attempt, result, error)
        if isinstance(outcome, GiveUp):
            await atell_failed(attempt.handler, attempt.envelope, outcome)
        self._holding.finish(held, outcome)
        self._ended += 1
        if not self._ringing:
            self._ringing = True
            self._loop.call_soon(self._ring_once)

    def _ring_once(self) -> None:
        """After everything that ended in this turn of the loop, so that the main thread wakes once for all of it."""
        self._ringing = False
        self._ring()
