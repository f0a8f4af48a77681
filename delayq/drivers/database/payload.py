"""A job as Laravel writes it: what its `payload` column holds, from an envelope and back.

    {"uuid", "displayName", "job", "maxTries", …, "data": {…}, "createdAt", "delay", "delayq": {…}}

`job` is the job's name and `data` its payload, so a worker of either language can run it: for Laravel it is a string
job. `delayq` holds the rest of the envelope, and whatever an envelope may hold one day; Laravel carries it along. A
payload without it was written by Laravel, and its bytes stay as they are.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.envelope import VERSION, Envelope
from delayq.core.errors import BadEnvelope
from delayq.drivers.database.tables import MOST_ATTEMPTS

OWN: Final = "delayq"


class _Laravel(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a payload. Members of PHP that may be of any kind are left as they are until they are needed."""

    uuid: str | None = None
    display_name: str | None = msgspec.field(default=None, name="displayName")
    job: str | None = None
    max_tries: Any = msgspec.field(default=None, name="maxTries")
    max_exceptions: Any = msgspec.field(default=None, name="maxExceptions")
    backoff: Any = None
    timeout: Any = None
    retry_until: Any = msgspec.field(default=None, name="retryUntil")
    data: msgspec.Raw = envelopes.NO_DATA
    delayq: dict[str, msgspec.Raw] | None = None


_encode = msgspec.json.Encoder().encode
_read = msgspec.json.Decoder(_Laravel).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Row(NamedTuple):
    """What of a row says more than its payload: `attempts` as they were before this reservation, if it is one."""

    number: int
    queue: str
    attempts: int
    created_at: int


class Read(NamedTuple):
    """A payload as a job. `own`: delayq wrote it."""

    id: str
    envelope: bytes
    own: bool


def written(raw: bytes) -> str:
    """The payload of an envelope. Raises `BadEnvelope`."""
    envelope = envelopes.decode(raw)
    members = _members(raw)
    data = members.pop("data", envelopes.NO_DATA)
    return _encode({**_laravel(envelope), "data": data, OWN: members}).decode()


def rewritten(payload: str, raw: bytes) -> str:
    """A payload with what has changed in its envelope; one that Laravel wrote keeps all it holds."""
    found = _read(payload.encode())
    if found.delayq is not None:
        return written(raw)
    members, changed = _members(payload.encode()), _members(raw)
    kept = {name: changed[name] for name in ("exceptions", "headers") if name in changed}
    return _encode({**members, OWN: {"v": VERSION, **kept}}).decode()


def read(payload: str, row: Row) -> Read:
    """The job of a row. Raises `BadEnvelope` for what is no payload at all."""
    raw = payload.encode("utf-8", "surrogateescape")
    try:
        found = _read(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadEnvelope(f"The payload of row {row.number} in queue {row.queue} is no job: {error}.") from None
    own = found.delayq or {}
    if "id" in own:
        members = {**own, "queue": row.queue, "attempts": _attempts(own, row), "data": found.data}
        return Read(msgspec.json.decode(own["id"], type=str), _encode(members), True)
    name = found.job if found.job and "CallQueuedHandler" not in found.job else found.display_name
    if not name:
        raise BadEnvelope(f"The payload of row {row.number} in queue {row.queue} names no job.")
    return Read(*_foreign(found, own, name, row), False)


def read_alone(payload: str) -> bytes:
    """The envelope of a payload that stands in no queue any more. Raises `BadEnvelope`."""
    try:
        own = _read(payload.encode("utf-8", "surrogateescape")).delayq or {}
        queue = msgspec.json.decode(own.get("queue", b'"default"'), type=str)
        attempts = msgspec.json.decode(own.get("attempts", b"0"), type=int)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadEnvelope(f"These {len(payload)} characters are no payload of a job: {error}.") from None
    return read(payload, Row(0, queue, attempts, 0)).envelope


def _attempts(own: dict[str, msgspec.Raw], row: Row) -> int:
    """The column's count, which Laravel moves on too; where it ends, the envelope's own."""
    if row.attempts < MOST_ATTEMPTS - 1:
        return row.attempts
    return max(row.attempts, msgspec.json.decode(own.get("attempts", b"0"), type=int))


def _foreign(found: _Laravel, own: dict[str, msgspec.Raw], name: str, row: Row) -> tuple[str, bytes]:
    job_id = found.uuid or f"row-{row.number}"
    envelope = Envelope(
        v=VERSION,
        id=job_id,
        name=name,
        queue=row.queue,
        data=found.data,
        attempts=row.attempts,
        created_ms=row.created_at * 1000,
        tries=_whole(found.max_tries),
        max_exceptions=_whole(found.max_exceptions) or None,
        backoff=_backoff(found.backoff),
        timeout_ms=_ms(found.timeout),
        retry_until_ms=_ms(found.retry_until) or None,
    )
    raw = envelopes.encode(envelope)
    return job_id, _encode({**_members(raw), **{name: own[name] for name in own if name != "v"}}) if own else raw


def _laravel(envelope: Envelope) -> dict[str, Any]:
    """The members Laravel looks at, in its order."""
    return {
        "uuid": envelope.id,
        "displayName": envelope.name,
        "job": envelope.name,
        "maxTries": envelope.tries,
        "maxExceptions": envelope.max_exceptions,
        "failOnTimeout": False,
        "backoff": _laravel_backoff(envelope.backoff),
        "timeout": None if envelope.timeout_ms is None else -(-envelope.timeout_ms // 1000),
        "retryUntil": None if envelope.retry_until_ms is None else envelope.retry_until_ms // 1000,
        "createdAt": envelope.created_ms // 1000,
        "delay": None,
    }


def _laravel_backoff(backoff: Any) -> str | None:
    """Comma-joined seconds, as Laravel has it; what grows by a rule has no such form, and Laravel's default counts."""
    if isinstance(backoff, int):
        return str(-(-backoff // 1000))
    if isinstance(backoff, list):
        return ",".join(str(-(-step // 1000)) for step in backoff)
    return None


def _backoff(given: Any) -> list[int] | None:
    """Laravel's "10,60", or a number, as delayq's steps; what is neither says nothing."""
    parts = given.split(",") if isinstance(given, str) else given if isinstance(given, list) else [given]
    steps = [_ms(part) for part in parts]
    return [step for step in steps if step is not None] if steps and None not in steps else None


def _ms(seconds: Any) -> int | None:
    whole = _whole(seconds)
    return None if whole is None else whole * 1000


def _whole(value: Any) -> int | None:
    """A number PHP wrote as a number or as text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return int(value) if value >= 0 else None
    return int(value) if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() else None
