"""From an envelope to the payload that Laravel reads. Pure.

A job that PHP wrote goes back as it came, with its new count. One of ours gets Laravel's members, in whole seconds
where Laravel counts seconds, and `delayq` with what only an envelope has. `attempts` stands last, where the Redis
scripts find it without a search.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, assert_never

import msgspec

from delayq.core import envelope as envelopes
from delayq.core.backoff import Exponential, Fixed, Steps, from_wire
from delayq.core.envelope import Envelope
from delayq.core.errors import BadEnvelope, InvalidPayload
from delayq.drivers.laravel.payload import KEPT, OWN

MOST_STEPS: Final = 12
"""Of an exponential backoff, as a PHP worker sees it; the last one repeats."""
MAX_NESTING: Final = 480
"""PHP reads JSON nested 512 deep, the payload's own levels with it; Redis loses a job that Lua cannot decode."""

_TOO_MUCH: Final = re.compile(rb"[\[{]")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_SAID_ELSEWHERE: Final = frozenset(("id", "name", "queue", "data", "attempts", KEPT))
_encode = msgspec.json.Encoder().encode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def payload_of(raw: bytes, *, attempts: int | None) -> bytes:
    """The payload of an envelope; raises `BadEnvelope`.

    `attempts` is written into it, as in Redis; None leaves it and Laravel's own `id` out, as in a database.
    """
    envelope, members = envelopes.decode(raw), _decode_members(raw)
    count = {} if attempts is None else {"attempts": attempts}
    if KEPT in members:
        return _encode({**_as_it_came(envelope, members), **count})
    made = _made(envelope, {member: value for member, value in members.items() if member not in _SAID_ELSEWHERE})
    return _encode({**made, **({} if attempts is None else {"id": envelope.id}), **count})


def refuse_nesting(data: msgspec.Raw) -> None:
    """Raises `InvalidPayload` for data that PHP, or the Lua of Laravel's scripts, could not read."""
    if len(_TOO_MUCH.findall(data)) <= MAX_NESTING:
        return
    depth = deepest = 0
    for token in _TOKEN.finditer(data):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(token[0], 0)
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING:
        raise InvalidPayload(
            f"The payload is nested {deepest:,} deep, and Laravel reads {MAX_NESTING}.", hint="Send a flatter document."
        )


def _as_it_came(envelope: Envelope, members: dict[str, msgspec.Raw]) -> dict[str, Any]:
    """PHP's own members, in their order; with the failures counted so far where a limit asks for them."""
    try:
        kept: dict[str, Any] = dict(_decode_members(members[KEPT]))
    except msgspec.MsgspecError as error:
        raise BadEnvelope(f"The envelope's member {KEPT!r} is no payload of Laravel's: {error}.") from None
    kept.setdefault("data", envelope.data)
    if envelope.exceptions and envelope.max_exceptions:
        kept[OWN] = {"exceptions": envelope.exceptions}
    return kept


def _made(envelope: Envelope, rest: dict[str, msgspec.Raw]) -> dict[str, Any]:
    """A payload for a job of ours. What Laravel leaves open is null, and its worker decides."""
    until = envelope.retry_until_ms
    return {
        "uuid": envelope.id,
        "displayName": envelope.name.partition("@")[0],
        "job": envelope.name,
        "maxTries": envelope.tries,
        "maxExceptions": envelope.max_exceptions,
        "failOnTimeout": False,
        "backoff": _backoff(envelope),
        "timeout": None if envelope.timeout_ms is None else _seconds(envelope.timeout_ms),
        **({} if until is None else {"retryUntil": _seconds(until)}),
        "data": envelope.data,
        "createdAt": envelope.created_ms // 1000,
        OWN: rest,
    }


def _backoff(envelope: Envelope) -> str | None:
    """Laravel's list of seconds."""
    if envelope.backoff is None:
        return None
    return ",".join(str(_seconds(ms)) for ms in _steps(from_wire(envelope.backoff)))


def _steps(backoff: Fixed | Steps | Exponential) -> Sequence[int]:
    match backoff:
        case Fixed(ms):
            return [ms]
        case Steps(steps):
            return steps
        case Exponential():
            plain = replace(backoff, jitter=False)
            return [plain.delay_ms(attempt, None, lambda: 0.0) for attempt in range(1, MOST_STEPS + 1)]
        case _:
            assert_never(backoff)


def _seconds(ms: int) -> int:
    return math.ceil(ms / 1000)
