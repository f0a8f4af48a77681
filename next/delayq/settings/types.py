"""Types of settings: they parse values, format them for people, and carry the unit for the documentation."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, SecretStr, StringConstraints

from delayq.core.backoff import parse_backoff
from delayq.core.display import mask_url
from delayq.core.encryption import KeyRing
from delayq.core.names import check_queue
from delayq.core.options import parse_durability
from delayq.core.times import duration_ms, format_duration


@dataclass(frozen=True)
class Unit:
    """The kind or unit of a setting's value. The documentation shows it."""

    name: str


DURATION: Final = Unit("duration")
PATH: Final = Unit("path")
KEYS: Final = Unit("keys")

_CLASS: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def unit_of(metadata: Iterable[object]) -> Unit | None:
    """Return the unit in the metadata of a field, or None."""
    return next((one for one in metadata if isinstance(one, Unit)), None)


def written(value: Any, unit: Unit | None) -> Any:
    """Format a value for people. A duration becomes text such as 30s. Keys, and secrets in a url, are masked."""
    if unit == KEYS and value is not None:
        return "***"
    if isinstance(value, SecretStr):
        return mask_url(value.get_secret_value())
    return format_duration(value) if unit == DURATION else value


def _checked_driver(value: str) -> str:
    if value != "redis" and not _CLASS.fullmatch(value):
        raise ValueError("A driver is `redis`, or the class of another driver as package.module:Class")
    return value


def _milliseconds(value: Any) -> Any:
    return duration_ms(value, field="value") if isinstance(value, str | timedelta) else value


def _checked_backoff(value: str) -> str:
    if value:
        parse_backoff(value)
    return value


def _checked_durability(value: str) -> str:
    parse_durability(value)
    return value


def split_keys(text: str) -> list[str]:
    """Return the keys in a text that separates them by commas or lines. A line that starts with # is a comment."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return [key.strip() for line in lines for key in line.split(",") if key.strip()]


def _checked_keys(value: SecretStr | None) -> SecretStr | None:
    text = "" if value is None else value.get_secret_value()
    if not text.strip():
        return None
    KeyRing(split_keys(text))
    return value


DurationMs = Annotated[
    int,
    BeforeValidator(_milliseconds),
    DURATION,
]
"""A duration in milliseconds, parsed from text such as 30s or 1h30m."""

Url = Annotated[SecretStr | None, Unit("url")]
"""A secret, because a url may contain a password."""

Prefix = Annotated[str, StringConstraints(min_length=1, pattern=r"^[A-Za-z0-9._:-]+$"), Unit("text")]
Driver = Annotated[str, AfterValidator(_checked_driver)]
QueueName = Annotated[str, AfterValidator(check_queue), Unit("queue")]
BackoffText = Annotated[str, AfterValidator(_checked_backoff), Unit("durations")]
DurabilityText = Annotated[str, AfterValidator(_checked_durability), Unit("`memory`, `fsync`, `replicas:N`")]
Keys = Annotated[SecretStr | None, AfterValidator(_checked_keys), KEYS]
"""Keys for encryption, separated by commas."""

File = Annotated[str, PATH]
"""A path. In a settings file, a relative path starts at the directory of the file."""
