"""Comparison of a value with the value that was read back from its JSON."""

import dataclasses
from collections.abc import Iterable, Mapping, Set
from datetime import UTC, datetime, timezone
from typing import Any

import msgspec


def comes_back_as(sent: Any, back: Any) -> bool:
    """Return True if `back` equals `sent` in all parts.

    A datetime with a named time zone is never equal, because JSON keeps only its offset. An int equals a float of
    the same value.
    """
    try:
        return _is_equal(sent, back)
    except Exception:  # an `__eq__` of the application may raise; count the values as different then
        return False


def first_difference(sent: Any, back: Any, place: str = "") -> tuple[str, Any, Any]:
    """Return the first part that differs: its position, such as `[0].price`, the sent value and the read value."""
    for inner, one, other in _pairs(sent, back):
        if not comes_back_as(one, other):
            return first_difference(one, other, place + inner)
    return place, sent, back


def _pairs(sent: Any, back: Any) -> Iterable[tuple[str, Any, Any]]:
    """Return the position, sent value and read value of each part; empty if the values have no matching parts."""
    if type(sent) is not type(back):
        return ()
    if isinstance(sent, Mapping) and sent.keys() == back.keys():
        return [(f"[{key!r}]", value, back[key]) for key, value in sent.items()]
    if isinstance(sent, list | tuple) and len(sent) == len(back):
        return [(f"[{n}]", one, other) for n, (one, other) in enumerate(zip(sent, back, strict=True))]
    return [(f".{name}", getattr(sent, name), getattr(back, name)) for name in _parts(sent) or ()]


def _is_equal(sent: Any, back: Any) -> bool:
    if isinstance(sent, datetime):
        return bool(isinstance(back, datetime) and sent == back and _keeps_zone(sent))
    if isinstance(sent, Mapping):
        return (
            isinstance(back, Mapping)
            and sent.keys() == back.keys()
            and all(type(key) is type(other) for key, other in zip(sent, back, strict=True))
            and all(_is_equal(value, back[key]) for key, value in sent.items())
        )
    if isinstance(sent, list | tuple):
        return type(sent) is type(back) and len(sent) == len(back) and all(map(_is_equal, sent, back))
    if isinstance(sent, Set):
        return isinstance(back, Set) and sent == back
    parts = _parts(sent)
    if parts is not None:
        return type(sent) is type(back) and all(_is_equal(getattr(sent, name), getattr(back, name)) for name in parts)
    return bool(sent == back)


def _keeps_zone(value: datetime) -> bool:
    """Return True without a time zone, or if the time zone is only an offset."""
    return value.tzinfo is None or isinstance(value.tzinfo, timezone) or str(value.tzinfo) == str(UTC)


def _parts(value: Any) -> tuple[str, ...] | None:
    """Return the names of the fields to compare, or None if the value is compared as a whole."""
    made = getattr(type(value), "__dataclass_params__", None)
    if made is not None and made.eq:
        return tuple(field.name for field in dataclasses.fields(value) if field.compare)
    if isinstance(value, msgspec.Struct) and value.__struct_config__.eq:
        return value.__struct_fields__
    return None
