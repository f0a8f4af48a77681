"""What every program of a peer does alike. Only the standard library: it runs in the peer's own environment.

    program.py enqueue URL RECORDS COUNT AT    send COUNT jobs in bulk, due at AT (epoch seconds, 0 = now); say how long
    program.py lone URL RECORDS COUNT GAP      send COUNT jobs due now, one every GAP seconds
    program.py work URL RECORDS                work until it is terminated

A job carries the time that counts for it, and its handler calls `record` with that. What a start costs is the same for
all: a mark in the worker's own memory. Another thread writes the marks down, so that no handler makes a system call.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from array import array
from collections.abc import Callable

Send = Callable[[list[dict[str, object]], float], None]
"""Sends payloads that are due at a time (0 = now)."""

ROLE, URL, RECORDS = (*sys.argv[1:4], "", "", "")[:3]
_WRITE_EVERY_S = 0.02
_NOTE = "n" * 40


class Marks:
    """Which handlers have started in this process: pairs of when, and what time counts for the job."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._pairs: list[float] = []
        self._starting = threading.Lock()
        self._writer: threading.Thread | None = None

    def note(self, at: float) -> None:
        """From any thread: one call that adds a pair, in one step."""
        self._pairs.extend((time.time(), at))
        if self._writer is None:  # a thread does not outlive a fork: it begins where handlers run
            self._begin()

    def _begin(self) -> None:
        with self._starting:
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="marks", daemon=True)
                self._writer.start()

    def _write(self) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        while True:
            time.sleep(_WRITE_EVERY_S)
            if count := len(self._pairs):  # what is added meanwhile stands behind these
                os.write(file, array("d", self._pairs[:count]))
                del self._pairs[:count]


record = Marks(RECORDS).note


def payloads(count: int, at: float) -> list[dict[str, object]]:
    """About a hundred bytes of JSON each."""
    return [{"at": at, "order_id": number, "customer": "c-4711", "note": _NOTE} for number in range(count)]


def main(send: Send, work: Callable[[], None]) -> None:
    """Play the role that the command line names."""
    if ROLE == "work":
        work()
        return
    count, number = int(sys.argv[4]), float(sys.argv[5])
    if ROLE == "lone":
        for _ in range(count):
            send(payloads(1, time.time()), 0.0)
            time.sleep(number)
        return
    send(payloads(1, -1.0), number)  # connections, scripts and queues become known
    wanted = payloads(count, number)
    gc.collect()
    started = time.perf_counter()
    send(wanted, number)
    print(time.perf_counter() - started)
