"""Types that JSON has no word for and msgspec does not know: who writes and reads them.

msgspec knows dataclasses, its own structs, datetime, date, time, timedelta, UUID, Decimal, enums of text or numbers,
bytes (as base64), sets, tuples and mappings. Pydantic models are added here. What is added by others comes first.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec

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
        self.known = 0
        """How many kinds of models are known; they only ever grow. Looked at for every payload."""

    def add_models(self, models: Models) -> None:
        """Let these models be fields of jobs, also of those declared before."""
        self._models.append(models)
        self.known += 1
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
    """By field names; what is computed is left out."""
    try:
        text: str = model.model_dump_json(round_trip=True, by_alias=not _takes_names(type(model)))
    except ValueError as error:
        hint = "; with ser_json_bytes and val_json_bytes in its model_config any bytes can travel"
        raise ValueError(f"{error}{hint if 'utf-8' in str(error) else ''}") from None
    return msgspec.Raw(text.encode())


def _read_pydantic(kind: Any, value: Any) -> Any:
    """In JSON's mode, where strict models too take text for a time. Aliases are read as well as names."""
    options = {"by_alias": True, "by_name": True} if _takes_names(kind) else {}
    try:
        return kind.model_validate_json(msgspec.json.encode(value), **options)
    except ValueError as error:
        raise ValueError(_said(kind, error)) from None


def _takes_names(kind: Any) -> bool:
    """Pydantic from 2.11 on; before, a model with aliases is written by these."""
    return "by_name" in _parameters(kind.model_validate_json.__func__)


@cache
def _parameters(function: Any) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def _said(kind: Any, error: Any) -> str:
    """Pydantic's first complaint in one line, without the value."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    first = errors()[0]
    place = ".".join(map(str, (kind.__name__, *first["loc"])))
    lost = first["type"] == "float_type" and first["input"] is None
    return f"{place}: {first['msg']}{'; JSON has no inf and no nan' if lost else ''}"
