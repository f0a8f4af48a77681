"""An object of a JSON body says each member once: two readers of one that does not may each take another value.

What lies between takes the first and lets it pass, what comes behind takes the last. So it is refused, also inside a
payload.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec


def said_twice(body: bytes) -> str:
    """The place of the first member that stands there twice, as `#/data/a`; '' for none. `body` is JSON."""
    return looked_through(body)[0]


def looked_through(body: bytes) -> tuple[str, bool]:
    """As `said_twice`; and whether every value of it can be read, which no payload inside must then be asked again.

    Whoever reads JSON keeps one of two, so what was read has fewer strings than the text. To count them costs little;
    only what has too few is searched.
    """
    try:
        kept = msgspec.json.encode(msgspec.json.decode(body))
    except msgspec.MsgspecError:  # a number or a letter that it cannot hold
        return _search(body), False
    return "" if _quotes(kept) == _quotes(body) else _search(body), True


def _quotes(text: bytes) -> int:
    """Two for each string, names among them; those inside of strings are escaped and do not count."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return text.count(b'"')


class _Object(list[tuple[str, Any]]):
    """The members as they stand there."""


def _search(body: bytes) -> str:
    return _first(json.loads(body, object_pairs_hook=_Object, parse_int=str), "#")  # of any length


def _first(value: Any, place: str) -> str:
    inner: list[tuple[str, Any]] = []
    seen: set[str] = set()
    if isinstance(value, _Object):
        inner = value
        for name, _ in value:
            if name in seen:
                return f"{place}/{name[:100]}"
            seen.add(name)
    elif isinstance(value, list):
        inner = [(str(number), one) for number, one in enumerate(value)]
    return next((found for name, one in inner if (found := _first(one, f"{place}/{name}"))), "")
