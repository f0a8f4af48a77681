"""What a worker does, for programs: one JSON object a line on stdout, `delayq work --json`.

    {"event":"worker_starting","time":"…","name":"dq:…","pid":42,"queues":["default"],"weights":null,"jobs":["mail"]}
    {"event":"job_started","time":"…","job_id":"a","job":"mail","queue":"default","attempt":1,"late_ms":3}
    {"event":"job_ended","time":"…","job_id":"a","job":"mail","queue":"default","attempt":1,"outcome":"done",
     "took_ms":1.2,"error":null}
    {"event":"job_fenced","time":"…","job_id":"a","queue":"default","resent":false}
    {"event":"queue_paused","time":"…","name":"dq:…","queue":"default"}             by each process; queue_resumed
    {"event":"worker_pausing","time":"…","name":"dq:…"}                             and worker_resuming
    {"event":"worker_interrupted","time":"…","name":"dq:…","signal":"SIGTERM"}
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
from typing import Any, Final

import msgspec

from delayq.cli.printable import printable
from delayq.core.events import (
    Event,
    JobEnded,
    JobFenced,
    JobStarted,
    WorkerIdle,
    WorkerInterrupted,
    WorkerPausing,
    WorkerQueuePaused,
    WorkerQueueResumed,
    WorkerResuming,
    WorkerStarting,
    WorkerStopping,
)
from delayq.core.failure import message_of
from delayq.core.when import format_instant

LONGEST_TYPE: Final = 100
LONGEST_MESSAGE: Final = 2_000


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
                self._write("job_started", _job(event) | {"late_ms": event.late_ms})
            case JobEnded():
                self._write("job_ended", _ended(event))
            case JobFenced():
                self._write("job_fenced", {"job_id": event.id, "queue": event.queue, "resent": event.resent})
            case WorkerStarting():
                self._write("worker_starting", _worker(event))
            case WorkerStopping():
                self._write("worker_stopping", {"name": event.name, "reason": event.reason, "jobs": event.jobs})
            case WorkerInterrupted():
                self._write("worker_interrupted", {"name": event.name, "signal": event.signal})
            case WorkerPausing():
                self._write("worker_pausing", {"name": event.name})
            case WorkerResuming():
                self._write("worker_resuming", {"name": event.name})
            case WorkerQueuePaused():
                self._write("queue_paused", {"name": event.name, "queue": event.queue})
            case WorkerQueueResumed():
                self._write("queue_resumed", {"name": event.name, "queue": event.queue})
            case WorkerIdle():
                pass  # no change of any job; `top` shows it

    def _write(self, event: str, about: dict[str, Any]) -> None:
        line = _line(event, about)
        while line:  # the first line may be longer than a piece; nobody else writes yet
            line = line[os.write(self._fd, line) :]


def _job(event: JobStarted | JobEnded) -> dict[str, Any]:
    return {"job_id": event.id, "job": event.name, "queue": event.queue, "attempt": event.attempt}


def _worker(event: WorkerStarting) -> dict[str, Any]:
    weights = dict(zip(event.queues, event.weights, strict=True)) if event.weights else None
    who = {"name": event.name, "pid": os.getpid()}
    return who | {"queues": event.queues, "weights": weights, "jobs": event.jobs}


def _ended(event: JobEnded) -> dict[str, Any]:
    """With as much of the error's message as a line has room for."""
    about = _job(event) | {"outcome": event.outcome, "took_ms": round(event.took_ms, 3), "error": None}
    if event.error is None:
        return about
    error = {"type": printable(type(event.error).__name__[:LONGEST_TYPE]), "message": _shown(event.error)}
    while len(_line("job_ended", about | {"error": error})) > select.PIPE_BUF and error["message"]:
        error["message"] = error["message"][: len(error["message"]) // 2]
    return about | {"error": error}


def _shown(error: BaseException) -> str:
    """Its message, however it is made: it must not hide what became of the job."""
    return printable(message_of(error)[:LONGEST_MESSAGE])


def _line(event: str, about: dict[str, Any]) -> bytes:
    when = format_instant(time.time_ns() // 1_000_000)
    return msgspec.json.encode({"event": event, "time": when, **about}) + b"\n"
