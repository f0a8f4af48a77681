"""Codecs for types that neither JSON nor msgspec knows: pydantic models.

msgspec itself knows dataclasses, its own Structs, TypedDicts, datetime, date, time, timedelta, UUID, Decimal, enums,
bytes (as base64), sets, tuples and mappings.
"""

import sys
from typing import Any

import msgspec


def write_value(value: Any) -> Any:
    """Return what to write for a value that msgspec does not know; the hook of its encoder. Raises TypeError."""
    if _is_model(type(value)):
        return msgspec.Raw(value.model_dump_json(round_trip=True, by_alias=True).encode())
    raise TypeError(f"JSON has no form for a {type(value).__qualname__}")


def read_value(kind: type, value: Any) -> Any:
    """Return a value of a type that msgspec does not know; the hook of its decoder. Raises TypeError, ValueError."""
    if _is_model(kind):
        model: Any = kind
        return model.model_validate_json(msgspec.json.encode(value))
    raise TypeError(f"nothing makes a {kind.__qualname__} from JSON")


def _is_model(kind: type) -> bool:
    """Whether a class is a pydantic model. Nothing is imported for it: a program with such a class has imported it."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)
