"""What happened on a queue, written down minute by minute, and asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from delayq.core.activity import COUNTERS, PROMOTED_LATE, Span, Spread, row_of, span_of, spread_of
from delayq.redis.calls.call import Call, Command, Nature, Scope, call, text

_NONE: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType({})


def tally(
    scope: Scope, measures: Mapping[str, float], job_types: Mapping[str, Mapping[str, float]] = _NONE
) -> Call[bool]:
    """Count what happened since the last time, and what a worker measured; True. A full server refuses it whole.

    Not sent again when its reply is lost: what was measured is rather missing than counted twice.
    """
    args = [part for name, much in measures.items() for part in (name, f"{much:.14g}")]
    document = msgspec.json.encode(job_types) if job_types else ""
    nature = Nature.ONCE if measures or job_types else Nature.SAFE
    return call("tally", scope, [scope.now, document, *args], bool, nature=nature)


class Minutes(NamedTuple):
    """What a queue, or a shard of one, has on record: rows by minute (see `row_of`); how far its counters are ahead."""

    now_ms: int
    tallied: str
    totals: tuple[int, ...]
    rows: dict[int, bytes]


def activity(scope: Scope, minutes: int) -> Call[Minutes]:
    """The last minutes (at most 1,440), the one that has begun among them."""
    return call("activity", scope, [scope.now, minutes], _minutes, nature=Nature.READS)


def history(scope: Scope) -> Command[tuple[bytes, ...]]:
    """The rows of the last 90 days, in no order; each says its `day`, and one may be older."""
    return Command(("HGETALL", scope.keys.of("history")), _values, True)


def _values(reply: Mapping[bytes, bytes] | Sequence[bytes]) -> tuple[bytes, ...]:
    return tuple(reply.values() if isinstance(reply, Mapping) else reply[1::2])


def job_types(scope: Scope, key: str) -> Command[tuple[tuple[str, bytes], ...]]:
    """The rows of one of `types_by_hour` and `types_by_day`: name and row; rows may be older than what is kept."""
    return Command(("HGETALL", scope.keys.of(key)), _named, True)


def _named(reply: Mapping[bytes, bytes] | Sequence[bytes]) -> tuple[tuple[str, bytes], ...]:
    pairs = reply.items() if isinstance(reply, Mapping) else zip(reply[::2], reply[1::2], strict=True)
    return tuple((text(field).partition(":")[2], row) for field, row in pairs if b":" in field)


def weigh(scope: Scope) -> Call[int]:
    """How many bytes the keys of a queue take, about."""
    return call("weigh", scope, [], int, nature=Nature.READS)


def sums(scope: Scope) -> Command[Span]:
    """All that was ever written down of a queue."""
    return Command(("HGET", scope.keys.of("activity"), "sums"), _sums, True)


def promoted_late(scope: Scope) -> Command[Spread]:
    """How long after their due time jobs were promoted, all that ever were."""
    return Command(("HMGET", scope.keys.of("meta"), *PROMOTED_LATE), spread_of, True)


def _sums(raw: bytes | None) -> Span:
    return span_of(0, [row_of(raw or b"")])


def _minutes(reply: list[Any]) -> Minutes:
    end = 2 + len(COUNTERS)
    rows = dict(zip(map(int, reply[end::2]), reply[end + 1 :: 2], strict=True))
    return Minutes(int(reply[0]), text(reply[1]), tuple(map(int, reply[2:end])), rows)
