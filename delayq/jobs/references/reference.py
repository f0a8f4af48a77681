"""A reference: what travels instead of a model, and what a field says of how it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from delayq.core.errors import ConfigError


class OnMissing(StrEnum):
    """What becomes of a job whose model is gone: failed for good at once, or dropped."""

    FAIL = "fail"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True)
class Reference:
    """Says of a field of models how they are loaded: `order: Annotated[Order, Reference(on_missing="discard")]`.

    `on_missing` goes before what the job declares. `eager` is what to load along with each: for SQLAlchemy a list of
    loader options, for Django a function of the queryset; other models may take what they like.
    """

    on_missing: OnMissing | str | None = None
    eager: Any = None

    def __post_init__(self) -> None:
        if self.on_missing is not None:
            object.__setattr__(self, "on_missing", read_on_missing(self.on_missing))


class Ref(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model in a payload."""

    model: str
    key: Any

    def __hash__(self) -> int:
        return hash((self.model, msgspec.json.encode(self.key)))

    @property
    def word(self) -> bytes:
        """The key as bytes, to compare keys by: what JSON makes of a UUID is the same as that UUID."""
        return plain_word(self.key)

    def __str__(self) -> str:
        return f"{self.model} with the key {self.word.decode()}"


def plain_word(key: Any) -> bytes:
    """A key as JSON, members in order of their names."""
    return msgspec.json.encode(key, order="sorted")


def read_on_missing(word: OnMissing | str) -> OnMissing:
    """Raises `ConfigError` for what is no such word."""
    try:
        return OnMissing(word)
    except ValueError:
        raise ConfigError(f"on_missing is {word!r}.", hint='Use "fail" or "discard".') from None
