"""Where each setting came from, for `delayq config show --origin`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from delayq.core.backoff import Computed, Exponential, Fixed, Steps
from delayq.core.durations import format_duration
from delayq.core.routes import Route

if TYPE_CHECKING:
    from delayq.settings.model import Settings


@dataclass(frozen=True, slots=True)
class Origin:
    """One setting: its name, its value as people write it (no passwords), and who set it."""

    name: str
    value: str
    origin: str
    """'flag', 'env DELAYQ_LEASE', 'file /srv/shop/delayq.toml' or 'default'."""


def origins(settings: Settings) -> tuple[Origin, ...]:
    """Every setting in the order of the documentation."""
    rows = []
    for field, info in type(settings).model_fields.items():
        name = str(info.validation_alias or field)
        value = _written(field, getattr(settings, field))
        rows.append(Origin(name, value, settings.origin_of(name)))
    return tuple(rows)


def _written(field: str, value: Any) -> str:
    match value:
        case None:
            return ""
        case Fixed(ms):
            return format_duration(ms)
        case Steps(steps):
            return ",".join(format_duration(ms) for ms in steps)
        case Exponential():
            chance = ", with jitter" if value.jitter else ""
            return f"{format_duration(value.base_ms)} x {value.factor:g} up to {format_duration(value.cap_ms)}{chance}"
        case Computed():
            return "computed"
        case Enum():
            return str(value.value)
        case dict():
            return ", ".join(f"{name} = {_written('', one)}" for name, one in value.items())
        case Route(queue, connection):
            return queue or "" if connection is None else f"{connection}:{queue or ''}"
        case tuple():
            return ",".join(value)
        case int() if field.endswith("_ms"):
            return format_duration(value)
        case _:
            return str(value)
