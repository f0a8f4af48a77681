"""A job as a message of SQS, and back. The body is the envelope, or Laravel's payload. What else is
to be known are message attributes.

delayq-due           epoch ms: not to be started before. Only where a DelaySeconds does not say it: over 15 minutes,
                     and on a FIFO queue, which knows none
delayq-recoveries    how often its process died while it ran; only when more than 0
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from delayq.core import envelope as envelopes
from delayq.core.errors import BadEnvelope
from delayq.drivers.bodies import Bodies, Read
from delayq.drivers.sqs.place import HOP_S

DUE: Final = "delayq-due"
RECOVERIES: Final = "delayq-recoveries"
ROOM: Final = 256
"""Bytes left for attributes, which count too, and for what attempts add to an envelope."""


class Message(NamedTuple):
    """What is sent. `due_ms` 0: at once. `group` is the message group, on a FIFO queue."""

    body: bytes
    due_ms: int = 0
    recoveries: int = 0
    group: str = ""


class Received(NamedTuple):
    """What came."""

    message: Message
    handle: str
    job: Read


def entry(message: Message, now_ms: int, *, fifo: bool, token: str) -> dict[str, Any]:
    """As a send takes it. A FIFO queue takes no second message of the same `token` within five minutes."""
    left_s = max(0, -(-(message.due_ms - now_ms) // 1000))
    row: dict[str, Any] = {"MessageBody": text(message.body)}
    attributes: dict[str, Any] = {}
    if fifo:
        row["MessageGroupId"] = message.group
        row["MessageDeduplicationId"] = token
    else:
        row["DelaySeconds"] = min(HOP_S, left_s)
    if left_s > (0 if fifo else HOP_S):
        attributes[DUE] = {"DataType": "Number", "StringValue": str(message.due_ms)}
    if message.recoveries:
        attributes[RECOVERIES] = {"DataType": "Number", "StringValue": str(message.recoveries)}
    return {**row, "MessageAttributes": attributes} if attributes else row


def received(row: Mapping[str, Any], bodies: Bodies, queue: str, now_ms: int) -> Received:
    """What a receive brought from a queue. Raises `BadEnvelope` or `InvalidName` when it is no job of delayq."""
    body = str(row["Body"]).encode()
    attributes: Mapping[str, Any] = row.get("MessageAttributes", {})
    message = Message(
        body,
        _number(attributes, DUE),
        _number(attributes, RECOVERIES),
        str(row.get("Attributes", {}).get("MessageGroupId", "")),
    )
    return Received(message, str(row["ReceiptHandle"]), bodies.read(body, queue, now_ms))


def text(body: bytes) -> str:
    """JSON as SQS takes it. Two characters that UTF-8 can carry and XML cannot are escaped, as JSON allows."""
    return body.decode().replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def size(body: bytes) -> int:
    """Bytes that count."""
    return len(text(body).encode()) if b"\xef\xbf" in body else len(body)


def group_of(body: bytes, fallback: str) -> str:
    """The message group a job asks for with its header `group`."""
    try:
        return (envelopes.decode(body).headers or {}).get("group") or fallback
    except BadEnvelope:
        return fallback


def _number(attributes: Mapping[str, Any], name: str) -> int:
    value = str(attributes.get(name, {}).get("StringValue", "0"))
    if not value.isdecimal():
        raise BadEnvelope(f"Its attribute {name} is no number.")
    return int(value)
