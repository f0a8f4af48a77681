"""What is told of an attempt, to listeners and in log lines."""

from __future__ import annotations

from delayq.core.at_work import AtWork, trace_id_of
from delayq.core.envelope import Envelope
from delayq.core.events import JobEnded, JobStarted
from delayq.core.outcome import Outcome, told_as
from delayq.core.shards import queue_of
from delayq.drivers.base import Delivery


def at_work_on(delivery: Delivery, envelope: Envelope | None, worker: str) -> AtWork:
    """It, as log lines name it."""
    name, attempts, trace_id = "", 0, ""
    if envelope is not None:
        name, attempts, trace_id = envelope.name, envelope.attempts, trace_id_of(envelope.headers or None)
    return AtWork(delivery.id, name, queue_of(delivery.queue), attempts + 1, worker, trace_id)


def started(delivery: Delivery, envelope: Envelope, now_ms: int) -> JobStarted:
    """Its beginning."""
    late_ms = now_ms - delivery.due_ms
    queue, attempt = queue_of(delivery.queue), envelope.attempts + 1
    return JobStarted(delivery.id, envelope.name, queue, attempt, delivery.due_ms, late_ms)


def ended(
    delivery: Delivery, envelope: Envelope | None, outcome: Outcome, took_ms: float, ended_as: str = ""
) -> JobEnded:
    """Its end; `ended_as` where the outcome alone does not say it."""
    name, attempts = (envelope.name, envelope.attempts) if envelope else ("", 0)
    word, cause = (ended_as, None) if ended_as else told_as(outcome)
    return JobEnded(delivery.id, name, queue_of(delivery.queue), attempts + 1, word, took_ms, cause)
