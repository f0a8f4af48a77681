"""Whether a value that travelled as JSON came back as it was."""

import dataclasses
from collections.abc import Iterable, Mapping, Set
from datetime import UTC, datetime, timezone
from typing import Any

import msgspec


def comes_back_as(sent: Any, back: Any) -> bool:
    """Whether `back` is equal to what was sent, with all parts.

    A time zone by name is lost, because JSON keeps the offset alone. An int in a field for floats is equal.
    """
    try:
        return _is_equal(sent, back)
    except Exception:  # an __eq__ of the application may raise anything; equal is then more than can be said
        return False


def first_difference(sent: Any, back: Any, place: str = "") -> tuple[str, Any, Any]:
    """Return the first part that did not come back as it was sent: its place, such as `[0].price`, and both values."""
    for inner, one, other in _pairs(sent, back):
        if not comes_back_as(one, other):
            return first_difference(one, other, place + inner)
    return place, sent, back


def _pairs(sent: Any, back: Any) -> Iterable[tuple[str, Any, Any]]:
    """Return the parts of a value beside those that came back; none when they cannot be told apart."""
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
    """Whether the zone of a time is no more than its offset."""
    return value.tzinfo is None or isinstance(value.tzinfo, timezone) or str(value.tzinfo) == str(UTC)


def _parts(value: Any) -> tuple[str, ...] | None:
    """Return the fields of a value that is compared by its fields; None when it is compared as a whole."""
    made = getattr(type(value), "__dataclass_params__", None)
    if made is not None and made.eq:
        return tuple(field.name for field in dataclasses.fields(value) if field.compare)
    if isinstance(value, msgspec.Struct) and value.__struct_config__.eq:
        return value.__struct_fields__
    return None
