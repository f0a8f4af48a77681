"""The log lines about attempts: a retry, a failure, and with `--log-jobs` the end of each attempt."""

import logging
from typing import Any, Final

from delayq.backends.values import Acked, Delivery, Released, Settlement, Stopped
from delayq.core.envelope import Envelope
from delayq.core.failure import application_frames, message_of
from delayq.core.outcome import Done, GiveUp, Outcome, RunAgain
from delayq.core.shards import queue_of
from delayq.core.times import format_duration, format_instant

logger: Final = logging.getLogger("delayq.worker")

MAX_MESSAGE: Final = 1000
"""Maximum length of the message of an error in a log line, in characters."""


def log_members(delivery: Delivery, envelope: Envelope) -> dict[str, Any]:
    """Return the members that log records about an attempt have."""
    return {
        "job_id": delivery.id,
        "job": envelope.name,
        "queue": queue_of(delivery.queue),
        "attempt": envelope.attempts + 1,
    }


def log_retry(delivery: Delivery, envelope: Envelope, error: BaseException, delay_ms: int) -> None:
    """Log a retry after an error."""
    _log(logging.WARNING, delivery, envelope, error, f"is tried again in {delay_ms} ms")


def log_failure(delivery: Delivery, envelope: Envelope, outcome: GiveUp) -> None:
    """Log that a job has failed for good."""
    _log(logging.ERROR, delivery, envelope, outcome.error, f"failed at attempt {outcome.attempts}")


def log_end(
    delivery: Delivery,
    envelope: Envelope,
    decided: Outcome | None,
    settlement: Settlement,
    seconds: float,
    *,
    now_ms: int,
) -> None:
    """Log one line about an attempt that ended now and took `seconds`; see Attempts.log_end."""
    outcome, text = _outcome_of(settlement)
    if isinstance(decided, RunAgain) and decided.reason:
        text = f"{text}: {decided.reason}"
    if isinstance(decided, Done) and decided.discarded:
        outcome, text = "discarded", f"discarded: {decided.discarded}"
    runtime_ms = int(seconds * 1000)
    started_ms = max(now_ms - runtime_ms, delivery.due_ms)  # this clock and that of the server may differ by 1 ms
    started = format_instant(started_ms)
    members = log_members(delivery, envelope)
    logger.disabled = False
    logger.info(
        "job %s (%s, queue %s): attempt %d started at %s, took %s, %s",
        delivery.id,
        envelope.name,
        members["queue"],
        members["attempt"],
        started,
        format_duration(runtime_ms),
        text,
        extra={
            **members,
            "outcome": outcome,
            "started_ms": started_ms,
            "started": started,
            "runtime_ms": runtime_ms,
        },
    )


def _outcome_of(settlement: Settlement) -> tuple[str, str]:
    """Return the outcome of an attempt, as a word and as a text with more details."""
    match settlement:
        case Acked():
            return "done", "done"
        case Stopped():
            return "stopped", "stopped"
        case Released():
            return "released", f"released, runs again in {format_duration(settlement.delay_ms)}"
        case _:
            return "failed", "failed"


def _log(level: int, delivery: Delivery, envelope: Envelope, error: BaseException, what: str) -> None:
    """Log a retry or a failure, with the frames of the application from the traceback."""
    frames = application_frames(error)
    logger.disabled = False  # a handler may have called dictConfig, which disables loggers that it does not name
    logger.log(
        level,
        "job %s (%s, queue %s) %s: %s: %s",
        delivery.id,
        envelope.name,
        queue_of(delivery.queue),
        what,
        type(error).__name__,
        message_of(error)[:MAX_MESSAGE],
        exc_info=None if frames is None else (type(error), error, frames),
        extra=log_members(delivery, envelope),
    )
