"""What tests of jobs share."""

import json
from typing import Any

import msgspec

from delayq import JobContext
from delayq.core.envelope import Envelope
from delayq.jobs.dispatch import Sendable, plan
from delayq.manager import Manager
from delayq.settings.model import Settings


def payload_of(job: Sendable) -> Any:
    """Return the payload that a job would send."""
    planned = plan(job, Manager(Settings(url="redis://nowhere")))  # type: ignore[arg-type]
    assert planned.spec is not None
    return json.loads(bytes(planned.spec.data))


def context_of(name: str, *, attempts: int = 0) -> JobContext:
    """Return the context of a job that a worker runs."""
    data = msgspec.Raw(b"null")
    envelope = Envelope(v=1, id="a-1", name=name, queue="q", data=data, attempts=attempts, created_ms=0)
    return JobContext(envelope, b"", tries=5, due_ms=0)
