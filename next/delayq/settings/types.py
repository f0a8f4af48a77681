"""The types of settings: how a value is read, how it is written for people, and what it counts."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, SecretStr, StringConstraints

from delayq.core.backoff import parse_backoff
from delayq.core.display import mask_url
from delayq.core.names import check_queue
from delayq.core.options import parse_durability
from delayq.core.times import duration_ms, format_duration


@dataclass(frozen=True)
class Unit:
    """What the value of a setting is or counts, for documentation."""

    name: str


DURATION: Final = Unit("duration")
PATH: Final = Unit("path")


def _milliseconds(value: Any) -> Any:
    return duration_ms(value, field="value") if isinstance(value, str | timedelta) else value


def _masked(url: SecretStr | None) -> str | None:
    return None if url is None else mask_url(url.get_secret_value())


def _checked_backoff(value: str) -> str:
    if value:
        parse_backoff(value)
    return value


def _checked_durability(value: str) -> str:
    parse_durability(value)
    return value


DurationMs = Annotated[
    int,
    BeforeValidator(_milliseconds),
    PlainSerializer(format_duration, when_used="json"),
    DURATION,
]
"""Written as 30s or 1h30m, held as milliseconds."""

Url = Annotated[SecretStr | None, PlainSerializer(_masked, when_used="json"), Unit("url")]
"""Held as a secret, because it may hold a password. Its JSON is masked."""

Prefix = Annotated[str, StringConstraints(min_length=1, pattern=r"^[A-Za-z0-9._:-]+$"), Unit("text")]
QueueName = Annotated[str, AfterValidator(check_queue), Unit("queue")]
BackoffText = Annotated[str, AfterValidator(_checked_backoff), Unit("durations")]
DurabilityText = Annotated[str, AfterValidator(_checked_durability), Unit("`memory`, `fsync`, `replicas:N`")]
File = Annotated[str, PATH]
"""A path. In a settings file, a relative one starts at the directory of the file."""
