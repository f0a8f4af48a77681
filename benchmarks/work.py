"""The one job that is measured everywhere: a payload of 100 bytes and a handler that does nothing."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.envelope import VERSION, Envelope
from delayq.core.spec import JobSpec
from delayq.jobs.function import job
from delayq.jobs.registry import Registry, using

NAME: Final = "order.close"
QUEUE: Final = "orders"
PAYLOAD_BYTES: Final = 100
FAR: Final = "30d"


def payload(number: int) -> dict[str, Any]:
    """An order of exactly 100 bytes of JSON."""
    order = {"order_id": number, "customer": "c-4711-1234567", "total": "1234.50", "note": ""}
    order["note"] = "n" * (PAYLOAD_BYTES - len(msgspec.json.encode(order)))
    return order


def specs(count: int, *, start: int = 0, delay: str | None = FAR) -> list[JobSpec]:
    """Jobs to schedule, ids left to delayq."""
    return [JobSpec(name=NAME, data=payload(start + n), delay=delay, queue=QUEUE) for n in range(count)]


def raw_jobs(count: int, *, start: int = 0) -> list[tuple[str, bytes]]:
    """Ids and envelopes, ready made, in the very bytes delayq sends: the bare protocol is spared the making."""
    found = []
    for number in range(start, start + count):
        job_id = f"{number:026d}"
        raw = msgspec.Raw(msgspec.json.encode(payload(number)))
        envelope = Envelope(
            v=VERSION, id=job_id, name=NAME, queue=QUEUE, data=raw, attempts=0, created_ms=1_790_000_000_000
        )
        found.append((job_id, envelopes.encode(envelope)))
    return found


def registry_of(handler: Any) -> Registry:
    """A registry in which `handler` answers to the job's name."""
    registry = Registry()
    with using(registry):
        job(NAME)(handler)
    return registry
