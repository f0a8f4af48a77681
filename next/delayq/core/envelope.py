"""The envelope: what travels through Redis for one job, as UTF-8 JSON with whole words.

Only members that differ from their default are written. Members that this release does not know survive every path.
"""

from typing import Any, Final

import msgspec

from delayq.core.errors import InvalidInput


class Envelope(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One job as it travels. Times are epoch milliseconds, durations are milliseconds."""

    v: int
    id: str
    name: str
    queue: str
    data: msgspec.Raw
    created_ms: int
    attempts: int = 0
    tries: int | None = None
    retention_ms: int = 0


class UnreadableEnvelope(InvalidInput):
    """The bytes are no envelope. The job that carries them fails; no other job is affected."""


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Envelope)
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encode(envelope: Envelope) -> bytes:
    """Write an envelope as JSON. `v` is a member although it never differs, so it always travels."""
    return _encoder.encode(envelope)


def encode_data(data: dict[str, Any] | None) -> msgspec.Raw:
    """Write the arguments of a job as JSON, or raise InvalidInput when JSON cannot hold them."""
    try:
        return msgspec.Raw(_encoder.encode({} if data is None else data))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"data cannot be written as JSON: {error}", field="data") from error


def decode(raw: bytes) -> Envelope:
    """Read an envelope, or raise UnreadableEnvelope."""
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, ValueError) as error:
        raise UnreadableEnvelope(f"the envelope cannot be read: {error}") from error


def with_attempts(raw: bytes, attempts: int) -> bytes:
    """Return the envelope with another count of attempts. Every other member keeps its bytes."""
    members = _members.decode(raw)
    members["attempts"] = msgspec.Raw(b"%d" % attempts)
    return _encoder.encode(members)
