"""Types that JSON has no word for and msgspec does not know: who writes and reads them.

msgspec knows dataclasses, its own structs, datetime, date, time, timedelta, UUID, Decimal, enums of text or numbers,
bytes (as base64), sets, tuples and mappings. Pydantic models are added here. What is added by others comes first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from delayq.jobs.references.models import Models

_UNKNOWN: Final = object()


@dataclass(frozen=True, slots=True)
class TypeCodec:
    """One kind of type. `write` gives something JSON can carry, `read` makes the value again.

    Reading has no effects: a dispatch reads what it wrote, to see whether it comes back equal. What has to be looked
    up somewhere is a model: see `delayq.jobs.references.models`.
    """

    fits: Callable[[type], bool]
    write: Callable[[Any], Any]
    read: Callable[[type, Any], Any]


class Codecs:
    """The codecs and the models of one application. Types are asked for by their class, once each."""

    def __init__(self) -> None:
        self._codecs: list[TypeCodec] = [TypeCodec(_is_pydantic, _write_pydantic, _read_pydantic)]
        self._found: dict[type, Any] = {}
        self._models: list[Models] = []
        self._owners: dict[type, Models | None] = {}

    @property
    def known(self) -> int:
        """How many kinds of models are known; they only ever grow."""
        return len(self._models)

    def add_models(self, models: Models) -> None:
        """Let these models be fields of jobs, also of those declared before."""
        self._models.append(models)
        self._owners.clear()

    def models_of(self, kind: type) -> Models | None:
        """Whose models a class is; None when it is no model."""
        if kind not in self._owners:
            self._owners[kind] = next((one for one in self._models if one.name_of(kind) is not None), None)
        return self._owners[kind]

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
