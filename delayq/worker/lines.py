"""How running jobs and their worker talk: wishes to stop, the end of the worker, progress."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias
from weakref import WeakSet

from delayq.core.errors import DelayqError
from delayq.core.limiting import Limits
from delayq.core.progress import Told
from delayq.drivers.base import Delivery
from delayq.jobs.stopping import Stopping
from delayq.jobs.teller import Teller
from delayq.loops.troubles import Troubles
from delayq.worker.afterwards import Afterwards
from delayq.worker.held import Held

log = logging.getLogger("delayq.worker")

EVERY_S: Final = 0.3
"""Between two writes of what jobs tell; the first word is written at once."""
RETRY_S: Final = 1.0

Write: TypeAlias = Callable[[Sequence[tuple[Delivery, Told]]], None]


class Progress:
    """Writes what the jobs of a child tell, in a thread that is there once a job has told something.

    A job that tells a thousand things a second costs three writes. What cannot be written is said in the log and tried
    again with what is news by then: no job waits or fails for it.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._latest: dict[Held, Told] = {}
        self._written: dict[Held, Told] = {}
        self._news = threading.Event()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._troubles = Troubles(log)

    def tell(self, held: Held, told: Told) -> None:
        """From any thread, also one that is interrupted in the middle of this."""
        self._latest[held] = told
        if self._thread is None:
            self._start()
        self._news.set()

    def close(self) -> None:
        """End the thread; it writes nothing more than what it is about to."""
        self._closed.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="delayq-progress", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._news.wait()
            self._news.clear()
            try:
                self._flush()
                self._closed.wait(EVERY_S)
            except DelayqError as error:
                self._again(error)
            except Exception:
                log.exception("what jobs tell of themselves could not be written")

    def _again(self, error: DelayqError) -> None:
        self._troubles.tell(error)
        self._closed.wait(RETRY_S)
        self._news.set()

    def _flush(self) -> None:
        news: list[tuple[Held, Told]] = []
        for held, told in list(self._latest.items()):
            if held.outcome is not None:  # it has ended
                self._latest.pop(held, None)
                self._written.pop(held, None)
            elif self._written.get(held) is not told:
                news.append((held, told))
        if news:
            self._write([(held.delivery, told) for held, told in news])
            self._written.update(news)


class Farewell:
    """Tells the jobs of a child, once, that it will leave."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._listening: WeakSet[Stopping] = WeakSet()

    def listener(self) -> Stopping:
        """For one attempt; forgotten with it."""
        stopping = Stopping(self._event)
        with self._lock:
            self._listening.add(stopping)
        return stopping

    def say(self) -> None:
        """Again and again is as good as once."""
        if not self._event.is_set():
            self._event.set()
            with self._lock:
                listening = list(self._listening)
            for stopping in listening:
                stopping.fire()


@dataclass(frozen=True, slots=True)
class Lines:
    """What a child gives its jobs to talk with. `stop_asked` tells whether somebody asked that one to stop."""

    stop_asked: Callable[[Held], bool]
    progress: Progress
    farewell: Farewell
    limits: Limits | None = None
    afterwards: Afterwards = field(default_factory=Afterwards)

    def listener(self) -> Stopping:
        """For one attempt."""
        return self.farewell.listener()

    def teller(self, held: Held) -> Teller:
        """For one attempt."""
        return Teller(partial(self.progress.tell, held))
