"""Creates the events JobStarted and JobEnded of one attempt."""

from typing import Any

from delayq.core.envelope import REFUSED, Envelope
from delayq.core.events import Ended, JobEnded, JobStarted


def started(envelope: Envelope) -> JobStarted:
    """Return the event for an attempt that begins."""
    return JobStarted(**_facts(envelope))


def ended(envelope: Envelope, outcome: Ended, error: BaseException | None, seconds: float) -> JobEnded:
    """Return the event for an attempt that has ended."""
    return JobEnded(**_facts(envelope), outcome=outcome, error=error, seconds=seconds)


def _facts(envelope: Envelope) -> dict[str, Any]:
    return {
        "id": envelope.id,
        "name": envelope.name,
        "queue": envelope.queue,
        "attempt": envelope.attempts + 1,
        "headers": {name: value for name, value in (envelope.headers or {}).items() if name != REFUSED},
        "tags": tuple(envelope.tags or ()),
    }
