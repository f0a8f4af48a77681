"""What a caller says about a new job, checked and prepared for Redis."""

import math
import time
from datetime import datetime
from typing import Any

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.envelope import Envelope
from delayq.core.errors import InvalidInput
from delayq.core.names import check_id, check_queue, new_id
from delayq.core.times import Duration, to_ms


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One new job, as the caller describes it. Without `delay` and `at` it is due now."""

    name: str
    data: dict[str, Any] | None = None
    delay: Duration | None = None
    at: datetime | None = None
    id: str | None = None
    queue: str = "default"
    tries: int | None = None
    retention: Duration | None = None


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """One new job, ready to be sent. `when` is `+delay_ms` or the due time in epoch ms."""

    id: str
    name: str
    queue: str
    envelope: bytes
    when: str
    has_own_id: bool


def prepare(spec: JobSpec) -> NewJob:
    """Check a spec and write its envelope, or raise InvalidInput."""
    if spec.delay is not None and spec.at is not None:
        raise InvalidInput("delay and at exclude each other: say one of them", field="at")
    job_id = new_id() if spec.id is None else check_id(spec.id)
    queue = check_queue(spec.queue)
    written = envelopes.encode(
        Envelope(
            v=1,
            id=job_id,
            name=spec.name,
            queue=queue,
            data=envelopes.encode_data(spec.data),
            created_ms=time.time_ns() // 1_000_000,
            tries=spec.tries,
            retention_ms=0 if spec.retention is None else to_ms(spec.retention, field="retention"),
        )
    )
    return NewJob(job_id, spec.name, queue, written, _when(spec), spec.id is not None)


def _when(spec: JobSpec) -> str:
    """Return when the job is due, as `schedule` reads it. A delay is added by the server, to its own clock."""
    if spec.at is not None:
        if spec.at.tzinfo is None:
            raise InvalidInput(f"at {spec.at.isoformat()} has no offset: use an aware datetime", field="at")
        return str(math.ceil(spec.at.timestamp() * 1000))
    if spec.delay is None:
        return "+0"
    return f"+{to_ms(spec.delay)}"
