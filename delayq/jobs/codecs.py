"""Types that JSON has no word for and msgspec does not know: who writes and reads them.

msgspec knows dataclasses, its own structs, datetime, date, time, timedelta, UUID, Decimal, enums of text or numbers,
bytes (as base64), sets, tuples and mappings. Pydantic models are added here. What is added by others comes first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_UNKNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class TypeCodec:
    """One kind of type. `write` gives something JSON can carry, `read` makes the value again.

    `repeatable`: reading has no effects, so a dispatch may read what it wrote to see whether it comes back equal. A
    codec that asks a database is not; its own `write` must refuse what `read` could not find.
    """

    fits: Callable[[type], bool]
    write: Callable[[Any], Any]
    read: Callable[[type, Any], Any]
    repeatable: bool = True


class Codecs:
    """The codecs of one application. Types are asked for by their class, once each."""

    def __init__(self) -> None:
        self._codecs: list[TypeCodec] = [TypeCodec(_is_pydantic, _write_pydantic, _read_pydantic)]
        self._found: dict[type, Any] = {}

    def add(self, codec: TypeCodec) -> None:
        """Use this codec for the types it fits, before those added earlier."""
        self._codecs.insert(0, codec)
        self._found.clear()

    def of(self, kind: type) -> TypeCodec | None:
        """The codec of a type, or None."""
        found: TypeCodec | None = self._found.get(kind, _UNKNOWN)
        if found is _UNKNOWN:
            found = self._found[kind] = next((codec for codec in self._codecs if codec.fits(kind)), None)
        return found

    def write(self, value: Any) -> Any:
        """For msgspec: what to write instead of a value it does not know."""
        codec = self.of(type(value))
        if codec is None:
            raise TypeError(f"nothing writes a {type(value).__qualname__} as JSON")
        return codec.write(value)

    def read(self, kind: type, value: Any) -> Any:
        """For msgspec: the value of a type it does not know."""
        codec = self.of(kind)
        if codec is None:
            raise TypeError(f"nothing makes a {kind.__qualname__} from JSON")
        return codec.read(kind, value)


def _is_pydantic(kind: type) -> bool:
    """Without importing pydantic: who has such a class has imported it."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def _write_pydantic(model: Any) -> Any:
    return model.model_dump(mode="json")


def _read_pydantic(kind: Any, value: Any) -> Any:
    return kind.model_validate(value)
