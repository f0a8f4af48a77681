"""Laravel's payload and our envelope: the one from the other, both ways. Pure; every backend of Laravel's shares it.

    Laravel                                    envelope
    uuid, else id, else "x-" and a digest      id      the same in each attempt
    job ("Mailer@send"); of objects: display   name
    data; of objects: their plain fields       data
    maxTries, maxExceptions                    tries, max_exceptions
    backoff "5,10" · timeout · retryUntil  s   backoff · timeout_ms · retry_until_ms
    tags, createdAt or pushedAt                tags, created_ms
    delayq                                     whatever else an envelope has, word for word
    everything                                 laravel: kept, and written back as it came

The count of attempts is not read here: in Redis it stands in the payload, in a database in a column. `Payload.envelope`
and `payload_of` are told.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.envelope import NO_DATA, VERSION
from delayq.core.errors import BadEnvelope, InvalidName
from delayq.core.names import check_id
from delayq.drivers.laravel.command import HANDLER, named, read_command

MAX_BYTES: Final = 16 * 1024 * 1024
"""Of a payload that is read. delayq itself sends no more than DELAYQ_MAX_PAYLOAD."""
KEPT: Final = envelopes.FOREIGN
"""The member of an envelope that holds what PHP wrote, where PHP wrote it."""
OWN: Final = "delayq"
"""The member of a payload that holds what only an envelope has."""

DIGEST: Final = "x-"
"""What ids begin with that are made of the payload."""

_COUNT: Final = "attempts"
_LARGEST: Final = 2.0**53
_EMPTY: Final = {b'""': NO_DATA, b"[]": msgspec.Raw(b"{}")}
"""What PHP writes where there is no data: `''` and the empty array, which is a list and a mapping in one."""


class _Known(msgspec.Struct, frozen=True, rename="camel"):
    """The members of a payload that say something here. Redis scripts of Laravel's write an empty list as `{}`."""

    job: str
    data: msgspec.Raw = NO_DATA
    uuid: str | None = None
    id: str | int | None = None
    display_name: str | None = None
    max_tries: int | None = None
    max_exceptions: int | None = None
    backoff: int | float | str | list[int] | dict[str, int] | None = None
    timeout: float | None = None
    retry_until: float | None = None
    created_at: float | None = None
    pushed_at: float | None = None
    tags: list[str] | dict[str, str] | None = None
    attempts: int | None = None
    delayq: dict[str, msgspec.Raw] | None = None


_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_known = msgspec.json.Decoder(_Known, strict=False).decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Payload:
    """A payload that was read. `attempts`: the count it carries itself; None when it carries none."""

    id: str
    name: str
    attempts: int | None
    data: msgspec.Raw
    known: _Known
    members: dict[str, msgspec.Raw]

    def envelope(self, *, queue: str, attempts: int, seen_ms: int = 0) -> bytes:
        """The envelope, which counts `attempts` made before. Raises `BadEnvelope` where ours was tampered with.

        `seen_ms` is when it was made, as far as anybody knows: older versions of Laravel do not say.
        """
        own = self.known.delayq or {}
        members: dict[str, Any] = {
            "v": VERSION,
            "id": self.id,
            "name": self.name,
            "queue": queue,
            "data": self.data,
            "attempts": attempts,
            "created_ms": _ms(self.known.created_at or self.known.pushed_at or 0) or seen_ms,
            **_policy(self.known),
        }
        members |= {member: value for member, value in own.items() if member not in members or member in _EXACT}
        if "v" not in own:  # PHP wrote it
            members[KEPT] = self._kept()
        raw = _encode(members)
        envelopes.decode(raw)
        return raw

    def _kept(self) -> dict[str, msgspec.Raw]:
        left_out = {_COUNT, OWN, "data"} if bytes(self.data) == bytes(self.known.data) else {_COUNT, OWN}
        return {member: value for member, value in self.members.items() if member not in left_out}


_EXACT: Final = frozenset(
    ("v", "created_ms", "tries", "backoff", "timeout_ms", "retry_until_ms", "max_exceptions", "tags")
)
"""Members that both have, where ours is more exact."""


def read_payload(raw: bytes) -> Payload:
    """Read what a Laravel application queued. Raises `BadEnvelope`, in one sentence, for what cannot be run here."""
    if len(raw) > MAX_BYTES:
        raise BadEnvelope(
            f"The Laravel payload has {len(raw):,} bytes; at most {MAX_BYTES:,} are read.",
            hint="Store the data elsewhere and queue a reference.",
        )
    try:
        members, known = _decode_members(raw), _decode_known(raw)
        if known.job != HANDLER:
            return Payload(_id(known, members), named(known.job), known.attempts, _data(known), known, members)
        name, fields = read_command(_decode_any(known.data), known.display_name)
    except RecursionError:
        raise BadEnvelope("The Laravel payload is nested too deeply to be read.") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise BadEnvelope(
            f"These {len(raw):,} bytes are no payload of Laravel's: {error}.",
            hint="Only jobs of Laravel belong here. On Redis, the options serializer and compression of Laravel's "
            "connection must be off.",
        ) from None
    return Payload(_id(known, members), name, known.attempts, msgspec.Raw(_encode(fields)), known, members)


def label(raw: bytes) -> tuple[str, str]:
    """Id and name of a payload that cannot be read, as far as they can: for lists and logs. The id always fits."""
    if len(raw) > MAX_BYTES:
        return _digest(raw), ""
    try:
        members, known = _decode_members(raw), _decode_known(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _digest(raw), ""
    return _id(known, members), (known.display_name or "") if known.job == HANDLER else known.job


def carried(raw: bytes, *, queue: str) -> bytes:
    """An envelope around a payload that only Laravel can run, so that it can be put back for Laravel to run.

    Raises `BadEnvelope` for what is no payload at all.
    """
    try:
        members = _decode_members(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise BadEnvelope(f"These {len(raw):,} bytes are no payload of Laravel's.") from None
    id_, name = label(raw)
    kept = {member: value for member, value in members.items() if member != _COUNT}
    called = named(name, "laravel.unreadable")
    made = {"v": VERSION, "id": id_, "name": called, "queue": queue, "data": None, "attempts": 0, "created_ms": 0}
    return _encode({**made, KEPT: kept})


def _data(known: _Known) -> msgspec.Raw:
    ours = known.delayq is not None and "v" in known.delayq
    return known.data if ours else _EMPTY.get(bytes(known.data), known.data)


def _id(known: _Known, members: dict[str, msgspec.Raw]) -> str:
    """Without one of PHP's, a digest of what stays the same over attempts, in whatever order it is written."""
    for said in (known.uuid, known.id):
        if said is not None and is_id(str(said)):
            return str(said)
    return _digest(_encode({word: members[word] for word in sorted(members) if word not in (_COUNT, OWN)}))


def is_id(text: str) -> bool:
    """Whether a text can be the id of a job."""
    try:
        check_id(text)
    except InvalidName:
        return False
    return True


def _ms(seconds: float) -> int:
    """Seconds as whole milliseconds, none below 0, none that JSON could not carry."""
    return int(min(max(0.0, seconds * 1000), _LARGEST))


def _digest(raw: bytes) -> str:
    return f"{DIGEST}{hashlib.sha1(raw, usedforsecurity=False).hexdigest()}"


def _policy(known: _Known) -> dict[str, Any]:
    """What the payload says of tries and times; what it leaves open stays open."""
    backoff = _backoff_ms(known.backoff)
    found: dict[str, Any] = {
        "tries": None if known.max_tries is None else max(0, known.max_tries),
        "max_exceptions": known.max_exceptions if known.max_exceptions and known.max_exceptions > 0 else None,
        "backoff": backoff[0] if len(backoff) == 1 else backoff or None,
        "timeout_ms": None if known.timeout is None else _ms(known.timeout),
        "retry_until_ms": _ms(known.retry_until) if known.retry_until else None,
        "tags": list(known.tags) if known.tags and isinstance(known.tags, list) else None,
    }
    return {member: value for member, value in found.items() if value is not None}


def _backoff_ms(backoff: Any) -> list[int]:
    if backoff is None or backoff == "":
        return []
    steps = backoff.split(",") if isinstance(backoff, str) else backoff
    if isinstance(steps, dict):
        steps = list(steps.values())
    try:
        return [_ms(float(step)) for step in (steps if isinstance(steps, list) else [steps])]
    except ValueError:
        raise BadEnvelope(f"The Laravel payload has the backoff {backoff!r}, which is no list of seconds.") from None
