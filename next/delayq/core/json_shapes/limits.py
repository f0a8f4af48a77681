"""JSON shapes of limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from delayq.core.limits import LimitInfo


@dataclass(frozen=True, slots=True)
class PlacesShape:
    """The number of taken places under one key of a limit."""

    key: str
    held: int


@dataclass(frozen=True, slots=True)
class LimitShape:
    """Answer of `delayq limit list`, one line for each limit. `held` is the sum for all keys in `places`."""

    name: str
    held: int
    granted: int
    refused: int
    places: Sequence[PlacesShape]

    @classmethod
    def of(cls, limit: LimitInfo) -> Self:
        """Return the shape of a limit."""
        places = [PlacesShape(key, held) for key, held in limit.places]
        return cls(limit.name, limit.held, limit.granted, limit.refused, places)


@dataclass(frozen=True, slots=True)
class UnknownLimitShape:
    """Answer of `delayq limit free` for an unknown name; exit code 3."""

    name: str
    key: str | None
    outcome: Literal["unknown"] = "unknown"


@dataclass(frozen=True, slots=True)
class FreedShape:
    """Answer of `delayq limit free`. `key`: null = places of all keys."""

    name: str
    key: str | None
    freed: int
