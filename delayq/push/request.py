"""What a pushed job looks like on the wire: the body and the heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.envelope import ABSENT, Envelope
from delayq.core.when import format_instant
from delayq.jobs.context import JobContext
from delayq.jobs.notifications.signature import signed

TRACE: Final = ("traceparent", "tracestate")
"""Headers of a job that become heads of its request, so that a trace goes on at the receiver."""
_SAFE: Final = "!#$&'()*+,-./:;<=>?@[]^_`{|}~\""


def body_of(raw: bytes, envelope: Envelope, data: msgspec.Raw) -> bytes:
    """The envelope, without what follows it, which is others' business; an encrypted payload in the clear.

    All other members keep their bytes, also those this version does not know. Raises `BadEnvelope`.
    """
    changes: dict[str, object] = {}
    if envelope.encrypted is not ABSENT:
        changes = {"encrypted": None, "data": data}
    if envelope.chain is not ABSENT:
        changes["chain"] = None
    return envelopes.rewrite(raw, **changes) if changes else raw


def heads_of(
    context: JobContext, envelope: Envelope, body: bytes, keys: Sequence[bytes], now_s: float
) -> Mapping[str, str]:
    """Who and when, and the signature.

    `webhook-id` is the same in every attempt at this job, and another for a later job with the same id.
    """
    heads = {
        "content-type": "application/json",
        "user-agent": "delayq",
        "delayq-id": context.id,
        "delayq-name": plain(context.name),
        "delayq-queue": context.queue,
        "delayq-attempt": str(context.attempt),
        "delayq-due": format_instant(context.due_ms),
    }
    heads |= {name: plain(value) for name, value in context.headers.items() if name.lower() in TRACE}
    signature = signed(keys, f"{context.queue}:{context.id}:{envelope.created_ms}", int(now_s), body)
    return {**heads, **{name: value for name, value in signature.items() if value}}


def plain(text: str) -> str:
    """As it is where it is ASCII; anything else, and %, percent-encoded UTF-8."""
    return quote(text, safe=_SAFE)
