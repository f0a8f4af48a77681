"""The envelope: the JSON record that carries one job through Redis, in UTF-8.

* Members that have their default value are left out.
* `data` stays raw bytes, because only the handler reads the payload.
* Members that this release does not know are always preserved. So an older worker keeps the envelope of a newer
  producer intact when it retries the job.
* Times are epoch milliseconds, and durations are milliseconds. The names of times and durations end in `_ms`, except
  `backoff`.
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
"""The longest job name in an envelope, in characters. A job with a longer name cannot be scheduled, so an envelope with
a longer name is unreadable."""

SURELY_SHORT: Final = MAX_ID_BYTES // 4
"""An id with at most this many characters cannot be too long, so its bytes need not be counted."""

Number = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
"""A whole number that Lua and every other language represent exactly. Numbers are checked here, before a script gets
them. A script would reject the whole call because of one wrong number, and this call may also settle other jobs."""
Span = Annotated[int, msgspec.Meta(ge=0, le=2**51)]
"""A duration. The current time plus two such durations is still a Number."""

ABSENT: Final = msgspec.Raw(b"")
"""An absent raw member. Always use this one object, because the encoder recognises it by identity and leaves the member
out."""

UNKNOWN_SINCE: Final = "delayq-unknown-since"
"""The header with the time, in epoch ms, at which a worker first received this job but did not know its name or
fields."""

REFUSED: Final = "delayq-refused"
"""The header with the number of refusals in a row and the name of the limit, such as `3 mail`."""

_OWN_HEADERS: Final = (UNKNOWN_SINCE, REFUSED)
_MARK: Final = b'"delayq-'
"""How the headers of _OWN_HEADERS begin in JSON."""


class Refusals(msgspec.Struct, frozen=True, gc=False):
    """How many times in a row limits have refused a job, and the name of the limit that refused the job last."""

    count: int
    limit: str


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One job as it is stored in Redis. `attempts` is the number of attempts before the current one."""

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
        """Leave the payload out, because payloads do not belong in a log."""
        return f"Envelope(id={self.id!r}, name={self.name!r}, queue={self.queue!r}, attempts={self.attempts})"

    @property
    def is_followed(self) -> bool:
        """True if the job belongs to a chain or batch. The end of the job may then start other jobs."""
        return self.chain is not ABSENT or self.batch is not ABSENT


_JSON_ALREADY: Final = (bytes, msgspec.Raw)
_WITHOUT_PARTS: Final = frozenset({str, int, bool, type(None)})
_TEXTS_ONLY: Final = frozenset({str})

_encoder: Final = msgspec.json.Encoder()
_decode: Final = msgspec.json.Decoder(Envelope).decode
_decode_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_any: Final = msgspec.json.Decoder().decode


def encode(envelope: Envelope) -> bytes:
    """Return the JSON of an envelope."""
    return _encoder.encode(envelope)


def decode(raw: bytes) -> Envelope:
    """Read an envelope; raises UnreadableEnvelope with the reason."""
    try:
        envelope = _decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UnreadableEnvelope(f"The envelope of {len(raw)} bytes cannot be read: {error}.") from None
    if len(envelope.name) > MAX_NAME_LETTERS:
        raise UnreadableEnvelope(f"The envelope has a name of more than {MAX_NAME_LETTERS} characters.")
    if len(envelope.id) > SURELY_SHORT:
        check_id_fits(envelope.id)
    if envelope.v != VERSION:
        raise UnreadableEnvelope(f"The envelope has version {envelope.v}; this release reads version {VERSION}.")
    return envelope


def check_id_fits(job_id: str) -> None:
    """Raise UnreadableEnvelope for an id of more than 255 bytes. Only other programs can store such an id."""
    if len(job_id.encode("utf-8", "replace")) > MAX_ID_BYTES:
        raise UnreadableEnvelope(f"The job id has more than {MAX_ID_BYTES} bytes.")


def rewrite(raw: bytes, **changes: Any) -> bytes:
    """Return an envelope with some members changed; None removes a member. All other members keep their exact bytes.

    Raises UnreadableEnvelope.
    """
    try:
        members = _decode_members(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UnreadableEnvelope(f"The envelope of {len(raw)} bytes cannot be read: {error}.") from None
    for member, value in changes.items():
        if value is None:
            members.pop(member, None)
        else:
            members[member] = msgspec.Raw(_encoder.encode(value))
    return _encoder.encode(members)


def recount(
    raw: bytes,
    *,
    attempts: int,
    exceptions: int,
    unknown_since_ms: int | None = None,
    refusals: Refusals | None = None,
) -> bytes:
    """Return an envelope with the counts after an attempt.

    The header UNKNOWN_SINCE is set to `unknown_since_ms`, and the header REFUSED to `refusals`. None removes a header.
    """
    changes: dict[str, Any] = {"attempts": attempts, "exceptions": exceptions or None}
    if unknown_since_ms is not None or refusals is not None or _MARK in raw:
        changes["headers"] = _headers_with(raw, unknown_since_ms, refusals)
    return rewrite(raw, **changes)


def refusals_of(envelope: Envelope) -> Refusals | None:
    """Return how many times in a row limits have refused a job, or None if no limit refused the last delivery."""
    count, _, limit = (envelope.headers or {}).get(REFUSED, "").partition(" ")
    is_number = count.isascii() and count.isdecimal() and len(count) < 10
    return Refusals(int(count), limit) if is_number else None


def refresh(raw: bytes, envelope: Envelope, now_ms: int) -> bytes:
    """Return the envelope for the retry of a failed job.

    The counts are 0. Expired time limits and the headers that delayq itself has added are removed.
    """
    changes: dict[str, Any] = {"attempts": 0, "exceptions": None}
    if envelope.retry_until_ms is not None and envelope.retry_until_ms <= now_ms:
        changes["retry_until_ms"] = None
    if envelope.deadline_ms is not None and envelope.deadline_ms <= now_ms:
        changes["deadline_ms"] = None
    if not (envelope.headers or {}).keys().isdisjoint(_OWN_HEADERS):
        changes["headers"] = _headers_with(raw, None, None)
    return rewrite(raw, **changes)


def fingerprint(raw: bytes) -> str:
    """Return the SHA-1 of an envelope.

    `retry` sends this SHA-1, so that the script does not overwrite an envelope that another program has changed.
    """
    return hashlib.sha1(raw, usedforsecurity=False).hexdigest()


_OF_OBJECTS: Final = (
    'An example: {"order_id": 42}. To send a database model, pass it to `dispatch` as a member of the payload: '
    '{"order": order}. If you have only its key, pass ModelRef("shop.Order", 42).'
)


def encode_data(data: object, limit: int) -> msgspec.Raw:
    """Return a payload as JSON of at most `limit` bytes. `bytes` must already be JSON, and are returned unchanged.

    Raises InvalidInput for a longer payload, for `bytes` that are not JSON, for objects that JSON cannot express, and
    for values that JSON cannot carry exactly: NaN and infinity, half of a surrogate pair, and two keys of a dict that
    become the same text.
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
        hint = _OF_OBJECTS if str(error).startswith("Encoding objects of type") else 'An example: {"order_id": 42}.'
        raise InvalidInput(f"The payload is not JSON: {error}.", hint=hint, field="data") from None
    if len(raw) > limit:
        raise InvalidInput(
            f"The payload has {len(raw):,} bytes; the limit is {limit:,}.",
            hint="Store it elsewhere and send a reference, or raise DELAYQ_MAX_PAYLOAD.",
            field="data",
        )
    if not is_json_already:
        _check_values(data, may_hold_nan=b"null" in raw)
    return msgspec.Raw(raw)


def _headers_with(raw: bytes, unknown_since_ms: int | None, refusals: Refusals | None) -> dict[str, str] | None:
    headers = {name: value for name, value in (decode(raw).headers or {}).items() if name not in _OWN_HEADERS}
    if unknown_since_ms is not None:
        headers[UNKNOWN_SINCE] = str(unknown_since_ms)
    if refusals is not None:
        headers[REFUSED] = f"{refusals.count} {refusals.limit}"
    return headers or None


def _check_values(data: object, *, may_hold_nan: bool) -> None:
    """Refuse values that the encoder writes without an error, but that would be read back as other values."""
    if (
        type(data) is dict
        and _TEXTS_ONLY.issuperset(map(type, data))
        and _WITHOUT_PARTS.issuperset(map(type, data.values()))
    ):
        return  # the usual case: a flat dict of plain values
    # The encoder writes NaN as null, also inside sets and dataclasses; `to_builtins` turns these into lists and dicts.
    # Raw members are JSON already, which has no NaN, so they are skipped.
    pending = [msgspec.to_builtins(data, enc_hook=lambda raw: None) if may_hold_nan else data]
    for value in pending:  # the loop appends to this list
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
                f"The payload holds {value}, which JSON cannot express.", hint="Send null or a text.", field="data"
            )


def _check_keys(mapping: dict[Any, Any]) -> None:
    seen: dict[bytes, object] = {}
    for key in mapping:
        written = _encoder.encode({key: None})
        if written in seen or (isinstance(key, float) and not isfinite(key)):
            raise InvalidInput(
                f"The payload has the key {shown(key)}, which JSON cannot express, or which equals another key "
                "in JSON.",
                hint="Use texts as keys.",
                field="data",
            )
        seen[written] = key
