"""Log lines of `work`, `move` and `up`: to stderr, for people or as JSON. Payloads are never logged."""

from __future__ import annotations

import logging
import sys
import traceback
from types import TracebackType
from typing import Final

import msgspec

from delayq.cli.printable import printable
from delayq.cli.render import Output
from delayq.cli.words import count
from delayq.core.at_work import AT_WORK, AtWork
from delayq.core.events import Event, JobEnded, JobFenced, JobStarted, WorkerStarting, WorkerStopping
from delayq.core.failure import MAX_TRACEBACK, in_a_line
from delayq.core.signals import JobSignal
from delayq.core.when import format_instant
from delayq.settings import LogFormat, Settings

MAX_PART: Final = 500
"""Characters of a frame, or of an error's message, in the traceback of a line about a job."""
_JOBS: Final = logging.getLogger("delayq.jobs")
NAMELESS: Final = "(no name)"
"""What a job is called in a line that could not be read: an entry that somebody else wrote."""
_FIELDS: Final = (*AtWork._fields, "outcome", "took_ms", "late_ms", "reason", "jobs")


def start(settings: Settings, *, quiet: bool) -> None:
    """Let log lines through, as the settings say; `quiet` = warnings and errors only.

    An application that set logging up when it was imported keeps its own way.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if settings.log_format is LogFormat.JSON else _Console())
    root.addHandler(handler)
    root.setLevel(logging.WARNING if quiet else settings.log_level.upper())


def greet(out: Output, settings: Settings, text: str) -> None:
    """What a process says once it is at work: a remark, or a line of the log where all lines are JSON."""
    if settings.log_format is LogFormat.JSON:
        logging.getLogger("delayq").info("%s", text)
    else:
        out.note(text)


class JobLines:
    """A listener: one line for every end of an attempt, at level info; with its traceback, an error: warning for one
    that leads to another attempt, error for a job that failed.
    """

    @property
    def only_trouble(self) -> bool:
        """Whether lines of level info are left out: then events of jobs that do well need not be made."""
        return not _JOBS.isEnabledFor(logging.INFO)

    def __call__(self, event: Event) -> None:
        """Write what there is to say of it."""
        match event:
            case JobStarted():
                about = {"job_id": event.id, "job": event.name, "queue": event.queue, "attempt": event.attempt}
                _JOBS.debug("%s %s started, %d ms late", event.name or NAMELESS, event.id, event.late_ms, extra=about)
            case JobEnded():
                _ended(event)
            case JobFenced():
                pass  # the worker itself says more about it than the event knows
            case WorkerStarting():
                pass  # `work` has said so, in a sentence
            case WorkerStopping():
                about = {"reason": event.reason, "jobs": event.jobs}
                _JOBS.info("stopped (%s) after %s", event.reason, count(event.jobs, "job"), extra=about)


def _ended(event: JobEnded) -> None:
    level = logging.INFO
    if event.outcome == "failed":
        level = logging.ERROR
    elif event.error is not None and not isinstance(event.error, JobSignal):
        level = logging.WARNING
    why = f": {in_a_line(event.error)}" if event.error else ""
    about = {
        "job_id": event.id,
        "job": event.name,
        "queue": event.queue,
        "attempt": event.attempt,
        "outcome": event.outcome,
        "took_ms": round(event.took_ms, 3),
    }
    text, name = "%s %s %s in %.1f ms (attempt %d)%s", event.name or NAMELESS
    info = _exc_info(event.error) if level > logging.INFO else None
    _JOBS.log(level, text, name, event.id, event.outcome, event.took_ms, event.attempt, why, extra=about, exc_info=info)


def _exc_info(error: BaseException | None) -> tuple[type[BaseException], BaseException, TracebackType] | None:
    """The error and its traceback from the first frame that is not delayq's on; None if there is no such frame."""
    frame = error.__traceback__ if error is not None else None
    while frame is not None and frame.tb_frame.f_globals.get("__name__", "").startswith("delayq."):
        frame = frame.tb_next
    return (type(error), error, frame) if error is not None and frame is not None else None


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The end of it, which says what was raised where; an error's message may be of any length.

    A line about a job has the message already, so long parts of its traceback are cut.
    """
    if record.exc_info and record.exc_info[0] and record.name == _JOBS.name:
        parts = traceback.format_exception(*record.exc_info)
        text = "".join(part if len(part) <= MAX_PART else f"{part[:MAX_PART]} …\n" for part in parts).rstrip("\n")
    else:
        text = formatter.formatException(record.exc_info) if record.exc_info else ""
    left_out = len(text) - MAX_TRACEBACK
    return text if left_out <= 0 else f"({left_out:,} characters left out) … {text[-MAX_TRACEBACK:]}"


class _Console(logging.Formatter):
    """`2026-11-21T15:00:00.000Z INFO delayq.jobs: order.close o1 done in 1.2 ms (attempt 1)`."""

    def format(self, record: logging.LogRecord) -> str:
        when = format_instant(record.created * 1000)
        lines = [f"{when} {record.levelname} {record.name}: {record.getMessage()}"]
        if record.exc_info:
            lines += _traceback(self, record).splitlines()
        return "\n".join(map(printable, lines))


class _Json(logging.Formatter):
    """One object a line; what is said while a job runs, by whomever, says of which job."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": format_instant(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        at_work = AT_WORK.get()
        if at_work is not None:
            line |= {name: value for name, value in at_work()._asdict().items() if value != ""}
        line |= {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
        if record.exc_info:
            line["exception"] = _traceback(self, record)
        return msgspec.json.encode(line).decode()
