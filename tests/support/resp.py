"""Finds the ends of replies in a stream of RESP2 or RESP3, without reading them."""

from __future__ import annotations

_ONE_LINE = b"+-:_#,("
_BLOB = b"$=!"
_NESTED = {b"*": 1, b"~": 1, b">": 1, b"%": 2, b"|": 2}


def split_replies(buffer: bytearray) -> list[bytes]:
    """Take every complete reply from the front of `buffer`; an attribute counts with the reply it precedes."""
    replies = []
    while (end := _end(buffer, 0)) is not None:
        replies.append(bytes(buffer[:end]))
        del buffer[:end]
    return replies


def _end(buffer: bytearray, start: int) -> int | None:
    """Where the reply that begins at `start` ends, or None if it is not all there yet."""
    line = buffer.find(b"\r\n", start)
    if line < 0:
        return None
    kind, after = bytes(buffer[start : start + 1]), line + 2
    if kind in _ONE_LINE:
        return after
    length = int(buffer[start + 1 : line])
    if kind in _BLOB:
        end = after if length < 0 else after + length + 2
        return end if end <= len(buffer) else None
    position: int | None = after
    for _ in range(max(0, length) * _NESTED[kind] + (kind == b"|")):
        position = _end(buffer, position) if position is not None else None
    return position
