"""The envelope: what travels between a producer and a handler, as UTF-8 JSON in whole words.

`data` stays raw bytes: nobody but the handler looks inside, so the bytes that come out are the
bytes that went in. Members this version does not know are kept by `rewrite`, so an older worker
passes a newer producer's envelope on unharmed.

Times are epoch milliseconds, durations milliseconds; both end in `_ms`.
"""

from __future__ import annotations

import hashlib
import json
from math import isfinite
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from delayq.core.errors import BadEnvelope, InvalidPayload
from delayq.core.shown import shown

VERSION: Final = 1
MOST_LETTERS: Final = 255
"""Of a job's name, and of an id; nothing longer is scheduled, so nothing longer is believed."""
LARGEST: Final = 2**53 - 1
"""Of its numbers: what every language and Lua carry exactly."""
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
"""Checked where an envelope is read: one that a script refuses would keep all that is settled with it from ending."""
Span: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**51)]
"""A duration in milliseconds; two of them added to the time of day are still a `Number`."""
NO_DATA: Final = msgspec.Raw(b"null")
UNKNOWN_SINCE: Final = "delayq-unknown-since"
"""The header that says when a worker first met the job without a handler for it, in epoch ms."""
FOREIGN: Final = "laravel"
"""The member that holds a payload which PHP wrote. It is put back as it was, so a header that is added is lost."""
ABSENT: Final = msgspec.Raw(b"")
"""A raw member that is not there; one object, because the encoder leaves it out by its identity."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job as it travels. `attempts` counts the attempts made before the one that succeeds."""

    v: int
    id: str
    name: str
    queue: str
    data: msgspec.Raw
    attempts: Number
    created_ms: Number
    tries: Number | None = None
    backoff: int | list[int] | dict[str, Any] | None = None
    timeout_ms: Span | None = None
    deadline_ms: Number | None = None
    retry_until_ms: Number | None = None
    max_exceptions: Number | None = None
    exceptions: Number = 0
    unique: str | None = None
    retention_ms: Span | None = None
    headers: dict[str, str] | None = None
    chain: msgspec.Raw = ABSENT
    batch: msgspec.Raw = ABSENT
    encrypted: msgspec.Raw = ABSENT
    tags: list[str] | None = None

    def __repr__(self) -> str:
        """Without the data: a payload has no business in a log."""
        return f"Envelope(id={self.id!r}, name={self.name!r}, queue={self.queue!r}, attempts={self.attempts})"


_encoder = msgspec.json.Encoder()
_decode = msgspec.json.Decoder(Envelope).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_any = msgspec.json.Decoder().decode


def encode(envelope: Envelope) -> bytes:
    """The wire form of an envelope."""
    return _encoder.encode(envelope)


def decode(raw: bytes) -> Envelope:
    """Read an envelope; raises `BadEnvelope` with the reason for anything else."""
    try:
        envelope = _decode(raw)
    except RecursionError:
        raise BadEnvelope("The envelope is nested too deeply to be read.") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise BadEnvelope(f"These {len(raw)} bytes are no envelope: {error}.") from None
    if len(envelope.name) > MOST_LETTERS or len(envelope.id) > MOST_LETTERS:
        raise BadEnvelope(f"These {len(raw)} bytes are no envelope: a name or id is over {MOST_LETTERS} characters.")
    if envelope.v != VERSION:
        raise BadEnvelope(f"The envelope has version {envelope.v}; this delayq reads version {VERSION}.")
    return envelope


def rewrite(raw: bytes, **changes: Any) -> bytes:
    """The same envelope with some members changed (None removes one); all others keep their bytes."""
    try:
        members = _decode_members(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadEnvelope(f"These {len(raw)} bytes are no envelope: {error}.") from None
    for member, value in changes.items():
        if value is None:
            members.pop(member, None)
        else:
            members[member] = msgspec.Raw(_encoder.encode(value))
    return _encoder.encode(members)


def keeps_headers(raw: bytes) -> bool:
    """Whether a header that is added to the envelope is still there at the next delivery."""
    return FOREIGN not in _decode_members(raw)


def recounted(raw: bytes, *, attempts: int, exceptions: int, unknown_since_ms: int | None = None) -> bytes:
    """The envelope with its counts after an attempt; the header `UNKNOWN_SINCE` is set, or removed if None is given."""
    changes: dict[str, Any] = {"attempts": attempts, "exceptions": exceptions or None}
    if unknown_since_ms is not None or UNKNOWN_SINCE.encode() in raw:
        changes |= _marked(raw, unknown_since_ms)
    return rewrite(raw, **changes)


def _marked(raw: bytes, unknown_since_ms: int | None) -> dict[str, Any]:
    headers = dict(decode(raw).headers or {})
    headers.pop(UNKNOWN_SINCE, None)
    if unknown_since_ms is not None:
        headers[UNKNOWN_SINCE] = str(unknown_since_ms)
    return {"headers": headers or None}


def afresh(raw: bytes, envelope: Envelope, now_ms: int) -> bytes:
    """The envelope of a failed job that somebody wants tried again: from the start, without limits that have passed."""
    changes: dict[str, Any] = {"attempts": 0, "exceptions": None}
    if envelope.retry_until_ms is not None and envelope.retry_until_ms <= now_ms:
        changes["retry_until_ms"] = None
    if envelope.deadline_ms is not None and envelope.deadline_ms <= now_ms:
        changes["deadline_ms"] = None
    if UNKNOWN_SINCE in (envelope.headers or {}):
        changes |= _marked(raw, None)
    return rewrite(raw, **changes)


def fingerprint(raw: bytes) -> str:
    """SHA-1 of an envelope: sent along when it is rewritten, so that a changed one is not overwritten."""
    return hashlib.sha1(raw, usedforsecurity=False).hexdigest()


def encode_data(data: object, limit: int) -> msgspec.Raw:
    """A payload as JSON; refuses with `InvalidPayload` what JSON cannot carry exactly or what is over `limit` bytes.

    What JSON has no form for goes as the text or list that an annotated parameter of a handler is read back from:
    times, UUIDs, decimals, enums, bytes as base64, sets and tuples; numbers as keys.
    """
    if data is None:
        return NO_DATA
    if isinstance(data, msgspec.Raw):  # JSON that was made here, by the codec of a job's fields
        return data if len(data) <= limit else within(bytes(data), limit)
    try:
        raw = _encoder.encode(data)
    except RecursionError:
        raise InvalidPayload("The payload is nested too deeply.", hint="Send a flatter document.") from None
    except UnicodeEncodeError:
        raise InvalidPayload(
            "The payload holds a lone surrogate, which UTF-8 cannot carry.", hint="Clean the text first."
        ) from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise InvalidPayload(f"The payload cannot be written as JSON: {error}.") from None
    if b"null" in raw:
        _refuse_non_finite(data)
    _check_keys(data, nested=raw.rfind(b"{") > 0)
    return msgspec.Raw(raw) if len(raw) <= limit else within(raw, limit)


_EXAMPLE: Final = 'An example: {"order_id": 42}'


def _why(raw: bytes, error: Exception) -> str:
    """What is wrong with it, where the decoder's own words would send people the wrong way."""
    if not raw.strip():
        return "it is empty"
    try:
        json.dumps(json.loads(raw), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "it holds half of a surrogate pair (\\ud800 to \\udfff), which is no text"
    except (ValueError, RecursionError):
        return str(error)
    return str(error)


def check_data(raw: bytes, limit: int) -> msgspec.Raw:
    """A payload that is JSON text already: checked, and otherwise left byte for byte."""
    if len(raw) > limit:
        within(raw, limit)
    try:
        _decode_any(raw)
    except RecursionError:
        raise InvalidPayload("The payload is nested too deeply.", hint="Send a flatter document.") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidPayload(f"The payload is not JSON: {_why(raw, error)}.", hint=_EXAMPLE) from None
    return msgspec.Raw(raw)


def within(raw: bytes | msgspec.Raw, limit: int, what: str = "The payload") -> msgspec.Raw:
    """A payload that is not too large. Raises `InvalidPayload`."""
    if len(raw) > limit:
        raise InvalidPayload(
            f"{what} has {len(raw):,} bytes; the limit is {limit:,}.",
            hint="Store it elsewhere and send a reference, or raise DELAYQ_MAX_PAYLOAD.",
        )
    return msgspec.Raw(raw)


def _check_keys(data: object, *, nested: bool) -> None:
    """Refuses keys that are no numbers, and those that are the same text in JSON: of two such one would be lost."""
    pending = [data]
    for value in pending:  # which grows
        if isinstance(value, dict):
            for key in value:
                if type(key) is not str:
                    _refuse_unclear(value)
                    break
            if nested:
                pending.extend(value.values())
        elif nested and isinstance(value, (list, tuple)):
            pending.extend(value)


def _refuse_unclear(mapping: dict[Any, Any]) -> None:
    seen = dict[bytes, object]()
    for key in mapping:
        if isinstance(key, float) and not isfinite(key):
            raise InvalidPayload(f"The payload has the key {key}, which is no number.", hint="Use text as a key.")
        written = _encoder.encode({key: None})
        if written in seen:
            raise InvalidPayload(
                f"The payload has the keys {shown(seen[written])} and {shown(key)}, which are the same text in JSON.",
                hint="Use text as keys.",
            )
        seen[written] = key


def _refuse_non_finite(data: object) -> None:
    """The encoder writes NaN and the infinities as null; look for them only when a null was written."""
    pending = [msgspec.to_builtins(data)]
    while pending:
        value = pending.pop()
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            raise InvalidPayload(f"The payload holds {value}, which JSON has no number for.", hint="Send null or text.")
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, (list, tuple)):
            pending.extend(value)
