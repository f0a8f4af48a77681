"""What a worker does, for programs: one JSON object a line on stdout, `delayq work --json`.

    {"event":"worker_started","time":"…","name":"dq:…","pid":42,"queues":["default"],"weights":{},"jobs":["mail"]}
    {"event":"job_started","time":"…","job_id":"a","job":"mail","queue":"default","attempt":1,"late_ms":3}
    {"event":"job_ended","time":"…","job_id":"a","job":"mail","queue":"default","attempt":1,"outcome":"done",
     "took_ms":1.2,"error":null}
    {"event":"job_fenced","time":"…","job_id":"a","queue":"default","resent":false}
    {"event":"worker_stopping","time":"…","name":"dq:…","reason":"empty","jobs":1}

`error` is the type and the message of what was raised. Payloads and results are never shown.

Several processes write to one pipe. Each line is one write of at most what a pipe takes in one piece, so lines never
mix; of an error message that is longer the end is cut off. What handlers print goes to stderr, because a line of
theirs between these would be no JSON.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from delayq.cli.printable import printable
from delayq.core.events import Event, JobEnded, JobFenced, JobStarted, WorkerStopping
from delayq.core.when import format_instant
from delayq.worker.options import WorkerOptions

LONGEST_TYPE: Final = 100


class EventLines:
    """A listener that writes to stdout, which is its own from then on. Made before the application is imported."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._fd = os.dup(1)  # not inherited by programs that a handler starts
        os.dup2(2, 1)

    def __call__(self, event: Event) -> None:
        """Write it down. Raises `OSError` when nobody reads any more."""
        match event:
            case JobStarted():
                about = _job(event) | {"late_ms": event.late_ms}
                self._write("job_started", about)
            case JobEnded():
                about = _job(event) | {"outcome": event.outcome, "took_ms": round(event.took_ms, 3)}
                self._write("job_ended", about, event.error, failable=True)
            case JobFenced():
                self._write("job_fenced", {"job_id": event.id, "queue": event.queue, "resent": event.resent})
            case WorkerStopping():
                self._write("worker_stopping", {"name": event.name, "reason": event.reason, "jobs": event.jobs})

    def started(self, options: WorkerOptions, jobs: Sequence[str]) -> None:
        """The first line: who works, on what."""
        weights = dict(zip(options.queues, options.weights, strict=True)) if options.weights else {}
        who = {"name": options.name, "pid": os.getpid()}
        what = {"queues": list(options.queues), "weights": weights, "jobs": list(jobs)}
        # Before the first fork nobody else writes, so this one may be longer than one piece.
        self._put(_line("worker_started", who | what))

    def _write(
        self, event: str, about: dict[str, Any], error: BaseException | None = None, *, failable: bool = False
    ) -> None:
        message = printable(str(error)) if error is not None else ""
        while True:
            shown = {"type": type(error).__name__[:LONGEST_TYPE], "message": message} if error is not None else None
            line = _line(event, about | ({"error": shown} if failable else {}))
            if len(line) <= select.PIPE_BUF or not message:
                break
            message = message[: min(len(message) // 2, select.PIPE_BUF)]
        self._put(line)

    def _put(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._fd, line) :]


def _job(event: JobStarted | JobEnded) -> dict[str, Any]:
    return {"job_id": event.id, "job": event.name, "queue": event.queue, "attempt": event.attempt}


def _line(event: str, about: dict[str, Any]) -> bytes:
    when = format_instant(time.time_ns() // 1_000_000)
    return msgspec.json.encode({"event": event, "time": when, **about}) + b"\n"
