"""The envelope: what travels through Redis for one job, as UTF-8 JSON with whole words.

Only members that differ from their default are written. `data` stays raw bytes: only the handler looks inside. Members
that this release does not know survive every path, so an older worker passes the envelope of a newer producer on
unharmed. Times are epoch milliseconds, durations milliseconds; both end in `_ms`.
"""

import hashlib
from math import isfinite
from typing import Annotated, Any, Final

import msgspec

from delayq.core.display import shown
from delayq.core.errors import InvalidInput, UnreadableEnvelope
from delayq.core.names import MAX_ID_BYTES

VERSION: Final = 1
MAX_NAME_LETTERS: Final = 255

SURELY_SHORT: Final = MAX_ID_BYTES // 4
"""An id of at most so many characters needs no count of its bytes."""
"""Of the name of a job, and of an id. Nothing longer is scheduled, so nothing longer is read."""

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
"""Whole numbers that are exact in every language and in Lua. They are checked here, because a script that refused one
would refuse all that is settled with it."""
Span = Annotated[int, msgspec.Meta(ge=0, le=2**51)]
"""A duration: two of them added to the time of day are still a Number."""

ABSENT: Final = msgspec.Raw(b"")
"""A raw member that is not there; one object, because the encoder leaves it out by its identity."""

UNKNOWN_SINCE: Final = "delayq-unknown-since"
"""The header that says when a worker first met the job without being able to read it, in epoch ms."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One job as it travels. `attempts` counts the attempts before this one."""

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
        """Leave the data out: a payload does not belong into a log."""
        return f"Envelope(id={self.id!r}, name={self.name!r}, queue={self.queue!r}, attempts={self.attempts})"

    @property
    def is_followed(self) -> bool:
        """Whether something may follow the end of this job."""
        return self.chain is not ABSENT or self.batch is not ABSENT


_JSON_ALREADY: Final = (bytes, msgspec.Raw)
_WITHOUT_PARTS: Final = frozenset({str, int, bool, type(None)})
_TEXTS_ONLY: Final = frozenset({str})

_encoder: Final = msgspec.json.Encoder()
_decode: Final = msgspec.json.Decoder(Envelope).decode
_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_any: Final = msgspec.json.Decoder().decode


def encode(envelope: Envelope) -> bytes:
    """Write an envelope."""
    return _encoder.encode(envelope)


def decode(raw: bytes) -> Envelope:
    """Read an envelope; raises UnreadableEnvelope with the reason."""
    try:
        envelope = _decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UnreadableEnvelope(f"These {len(raw)} bytes are no envelope: {error}.") from None
    if envelope.name[MAX_NAME_LETTERS:]:
        raise UnreadableEnvelope(f"The envelope has a name of more than {MAX_NAME_LETTERS} characters.")
    if envelope.id[SURELY_SHORT:]:
        check_id_fits(envelope.id)
    if envelope.v != VERSION:
        raise UnreadableEnvelope(f"The envelope has version {envelope.v}; this release reads version {VERSION}.")
    return envelope


def check_id_fits(job_id: str) -> None:
    """Raise UnreadableEnvelope for an id of more than 255 bytes: a program that is not delayq stored it."""
    if len(job_id.encode("utf-8", "replace")) > MAX_ID_BYTES:
        raise UnreadableEnvelope(f"The job id has more than {MAX_ID_BYTES} bytes.")


def rewrite(raw: bytes, **changes: Any) -> bytes:
    """Return an envelope with some members changed (None removes one). All others keep their bytes."""
    try:
        members = _decode_members(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UnreadableEnvelope(f"These {len(raw)} bytes are no envelope: {error}.") from None
    for member, value in changes.items():
        if value is None:
            members.pop(member, None)
        else:
            members[member] = msgspec.Raw(_encoder.encode(value))
    return _encoder.encode(members)


def recount(raw: bytes, *, attempts: int, exceptions: int, unknown_since_ms: int | None = None) -> bytes:
    """Return an envelope with its counts after an attempt. The header UNKNOWN_SINCE is set, or removed for None."""
    changes: dict[str, Any] = {"attempts": attempts, "exceptions": exceptions or None}
    if unknown_since_ms is not None or UNKNOWN_SINCE.encode() in raw:
        changes["headers"] = _headers_with(raw, unknown_since_ms)
    return rewrite(raw, **changes)


def refresh(raw: bytes, envelope: Envelope, now_ms: int) -> bytes:
    """Return the envelope of a failed job that is retried: from the start, without limits that have passed."""
    changes: dict[str, Any] = {"attempts": 0, "exceptions": None}
    if envelope.retry_until_ms is not None and envelope.retry_until_ms <= now_ms:
        changes["retry_until_ms"] = None
    if envelope.deadline_ms is not None and envelope.deadline_ms <= now_ms:
        changes["deadline_ms"] = None
    if UNKNOWN_SINCE in (envelope.headers or {}):
        changes["headers"] = _headers_with(raw, None)
    return rewrite(raw, **changes)


def fingerprint(raw: bytes) -> str:
    """Return the SHA-1 of an envelope. `retry` sends it along, so that a changed envelope is not overwritten."""
    return hashlib.sha1(raw, usedforsecurity=False).hexdigest()


def encode_data(data: object, limit: int) -> msgspec.Raw:
    """Write a payload as JSON of at most `limit` bytes. `bytes` are JSON already, and stay as they are.

    Raises InvalidInput for what JSON cannot carry exactly: NaN, half of a surrogate pair, two keys that are one text.
    """
    is_json_already = False
    try:
        if isinstance(data, _JSON_ALREADY):
            is_json_already = True
            _decode_any(data)
            raw = bytes(data)
        else:
            raw = _encoder.encode(data)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(
            f"The payload is no JSON: {error}.", hint='An example: {"order_id": 42}.', field="data"
        ) from None
    if len(raw) > limit:
        raise InvalidInput(
            f"The payload has {len(raw):,} bytes; the limit is {limit:,}.",
            hint="Store it elsewhere and send a reference, or raise DELAYQ_MAX_PAYLOAD.",
            field="data",
        )
    if not is_json_already:
        _check_values(data, may_hold_nan=b"null" in raw)
    return msgspec.Raw(raw)


def _headers_with(raw: bytes, unknown_since_ms: int | None) -> dict[str, str] | None:
    headers = dict(decode(raw).headers or {})
    headers.pop(UNKNOWN_SINCE, None)
    if unknown_since_ms is not None:
        headers[UNKNOWN_SINCE] = str(unknown_since_ms)
    return headers or None


def _check_values(data: object, *, may_hold_nan: bool) -> None:
    """Refuse what the encoder writes without an error, but not so that it comes back equal."""
    if (
        type(data) is dict
        and _TEXTS_ONLY.issuperset(map(type, data))
        and _WITHOUT_PARTS.issuperset(map(type, data.values()))
    ):
        return  # most payloads are as plain as this
    # A NaN is written as null, also out of a set or a dataclass, which are lists and dicts from here on.
    # What is JSON already (Raw) was made without one.
    pending = [msgspec.to_builtins(data, enc_hook=lambda raw: None) if may_hold_nan else data]
    for value in pending:  # grows while it is read
        if type(value) in _WITHOUT_PARTS:
            continue
        if isinstance(value, dict):
            if not _TEXTS_ONLY.issuperset(map(type, value)):
                _check_keys(value)
            pending.extend(value.values())
        elif isinstance(value, (list, tuple)):
            pending.extend(value)
        elif may_hold_nan and isinstance(value, float) and not isfinite(value):
            raise InvalidInput(
                f"The payload holds {value}, for which JSON has no number.", hint="Send null or a text.", field="data"
            )


def _check_keys(mapping: dict[Any, Any]) -> None:
    seen: dict[bytes, object] = {}
    for key in mapping:
        written = _encoder.encode({key: None})
        if written in seen or (isinstance(key, float) and not isfinite(key)):
            raise InvalidInput(
                f"The payload has the key {shown(key)}, which as JSON text is also another key, or no number.",
                hint="Use texts as keys.",
                field="data",
            )
        seen[written] = key
