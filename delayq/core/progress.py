"""What a running job tells of itself: how far it is, and what it has found so far."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec

from delayq.core.errors import InvalidInput, InvalidPayload

MAX_NOTE = 500
Number = int | float


@dataclass(frozen=True, slots=True)
class Progress:
    """What a job told last, at `at_ms` by the server's clock. What it never told is None, or '' of the note.

    `partial` is a result that is not final: any JSON.
    """

    at_ms: int
    done: Number | None = None
    total: Number | None = None
    note: str = ""
    partial: Any = None

    @property
    def fraction(self) -> float | None:
        """How much is done, 0.0 to 1.0; None without a total."""
        if self.done is None or not self.total:
            return None
        return min(1.0, max(0.0, self.done / self.total))


@dataclass(frozen=True, slots=True)
class Told:
    """The same before it is written. `partial` is JSON already: what the handler changes later does not count."""

    done: Number | None = None
    total: Number | None = None
    note: str = ""
    partial: bytes | None = None

    def encode(self) -> bytes:
        """JSON without its closing brace: the script adds when."""
        members = {"done": self.done, "total": self.total, "note": self.note or None}
        known: dict[str, Any] = {name: value for name, value in members.items() if value is not None}
        if self.partial is not None or not known:
            known["partial"] = msgspec.Raw(self.partial or b"null")
        return msgspec.json.encode(known)[:-1]


def check_number(name: str, value: object) -> Number:
    """A count. Raises `InvalidInput` for anything but a finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InvalidInput(f"{name}={value!r} is no count.", hint="Use a number from 0 on, such as done=3, total=10.")
    return value


def encode_partial(value: Any, max_bytes: int) -> bytes:
    """A partial result as JSON. Raises `InvalidPayload` for what is none, or is too large."""
    try:
        raw = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidPayload(
            f"A partial result of type {type(value).__name__} cannot be written as JSON: {error}.",
            hint="Use dicts, lists, strings, numbers, true, false and None.",
        ) from error
    if len(raw) > max_bytes:
        raise InvalidPayload(
            f"A partial result of {len(raw):,} bytes is too large; at most {max_bytes:,} are allowed.",
            hint="Store it yourself and tell where it is.",
        )
    return raw


def decode(raw: bytes) -> Progress | None:
    """What was told; None for b'', and for what somebody else wrote there."""
    try:
        return msgspec.json.decode(raw, type=Progress) if raw else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
