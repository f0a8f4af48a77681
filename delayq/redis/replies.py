"""One shape for every reply, whatever the wire protocol and the version of redis-py.

Between RESP2 and RESP3, and between redis-py 6.2, 7 and 8, the replies of the commands below differ:
lists of pairs or maps, tuples or lists, scores as text or as numbers. `install` gives a client our own
readers for just these, so that nobody else needs to know. All other commands delayq uses (XPENDING,
XINFO, XAUTOCLAIM, XCLAIM, XRANGE, HGETALL, HSCAN, ZSCAN, ZSCORE, EVALSHA, INFO, TIME) already agree; a test
compares them. Call commands by redis-py's methods: a raw execute_command("ZRANGE", ..., "WITHSCORES")
does not tell the reader that scores were asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

Entry: TypeAlias = tuple[bytes, dict[bytes, bytes]]
"""Entry id and fields; no fields means the entry is gone, as our entries always have some."""


class _TakesCallbacks(Protocol):
    def set_response_callback(self, command: str, callback: Callable[..., Any]) -> None: ...


def install(client: _TakesCallbacks) -> None:
    """Make `client`, and every pipeline of it, answer in the shapes of this module."""
    for command in ("XREAD", "XREADGROUP"):
        client.set_response_callback(command, read_streams)
    for command in ("ZRANGE", "ZRANGEBYSCORE", "ZREVRANGE", "ZREVRANGEBYSCORE"):
        client.set_response_callback(command, read_members)


def read_streams(reply: Any, **_options: Any) -> list[list[Any]]:
    """XREAD, XREADGROUP: [[stream, [Entry, ...]], ...]; [] when nothing came in time.

    Every delivery passes here: 0.4 us an entry, as redis-py's own.
    """
    if not reply:
        return []
    pairs = reply.items() if isinstance(reply, Mapping) else reply
    return [[stream, _entries(rows)] for stream, rows in pairs]


def raw_streams(reply: Any) -> list[tuple[bytes, list[Any]]]:
    """The same reply without a dictionary for each entry: (stream, [[entry id, [field, value, ...] or None], ...]).

    For the one place where every delivery passes. Also takes what `read_streams` made of a reply.
    """
    if not reply:
        return []
    plain = type(reply) is list or not isinstance(reply, Mapping)  # it asks a long way round
    pairs = reply if plain else reply.items()
    return [(stream, _flat_rows(rows)) for stream, rows in pairs]


def _flat_rows(rows: list[Any]) -> list[Any]:
    return [_flat(row) for row in rows] if rows and type(rows[0]) is tuple else rows


def _flat(row: Entry) -> list[Any]:
    return [row[0], [part for pair in row[1].items() for part in pair]]


def _entries(rows: Sequence[Any]) -> list[Entry]:
    if not rows:
        return []
    first = rows[0]
    # A sync cluster client reads a reply twice, first as redis-py does; that wraps the entries of RESP3 once more.
    if isinstance(first, list) and (not first or not isinstance(first[0], bytes)):
        return list(first)
    if isinstance(first, tuple):
        return list(rows)
    # Redis sends pairs, and saying `strict` here costs a third of the time.
    return [(row[0], dict(zip(fields := iter(row[1]), fields)) if row[1] else {}) for row in rows]  # noqa: B905


def read_members(reply: Any, **options: Any) -> Any:
    """ZRANGE and its kin: [member, ...], or with scores [(member, score), ...].

    Scores are floats (exact for milliseconds until the year 287396), or what `score_cast_func` makes of one.
    """
    if not reply or not options.get("withscores"):
        return reply
    cast: Callable[[float], Any] = options.get("score_cast_func", float)
    if isinstance(reply[0], list | tuple):
        return [(member, cast(float(score))) for member, score in reply]
    members = iter(reply)
    return [(member, cast(float(score))) for member, score in zip(members, members, strict=True)]
