"""Members that several shapes have in common."""

from dataclasses import fields
from typing import Any

from delayq.core.times import format_instant


def members_of(shape: Any) -> dict[str, Any]:
    """Return the fields of a shape, to build a shape with more fields."""
    return {field.name: getattr(shape, field.name) for field in fields(shape)}


def time_text(ms: int | None) -> str | None:
    """Return the RFC 3339 text for a time in epoch ms."""
    return None if ms is None else format_instant(ms)


def end_text(ms: int | None) -> str | None:
    """Return the RFC 3339 text for an end in epoch ms, or None for 0 (no end)."""
    return format_instant(ms) if ms else None
