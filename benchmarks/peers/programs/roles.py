"""What every program of a peer does alike. Only the standard library: it runs in the peer's own environment.

    program.py enqueue URL RECORDS COUNT AT    send COUNT jobs in bulk, due at AT (epoch seconds, 0 = now); say how long
    program.py lone URL RECORDS COUNT GAP      send COUNT jobs due now, one every GAP seconds
    program.py work URL RECORDS                work until it is terminated

A job carries the time that counts for it, and its handler calls `record` with that.
"""

from __future__ import annotations

import gc
import os
import struct
import sys
import time
from collections.abc import Callable

Send = Callable[[list[dict[str, object]], float], None]
"""Sends payloads that are due at a time (0 = now)."""

ROLE, URL, RECORDS = (*sys.argv[1:4], "", "", "")[:3]
_PAIR = struct.Struct("dd")
_FILE = os.open(RECORDS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if RECORDS else -1
_NOTE = "n" * 40


def record(at: float) -> None:
    """A handler started: 16 bytes that say when, and what time counts for the job."""
    os.write(_FILE, _PAIR.pack(time.time(), at))


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
