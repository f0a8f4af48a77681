"""JSON codecs for pydantic models, which msgspec does not support.

msgspec itself supports dataclasses, its own Structs, TypedDicts, datetime, date, time, timedelta, UUID, Decimal, enums,
bytes (as base64), sets, tuples and mappings.
"""

import sys
from typing import Any

import msgspec


def write_value(value: Any) -> Any:
    """Return the JSON of a value that msgspec does not support. This is the `enc_hook` of msgspec; raises TypeError."""
    if is_model(type(value)):
        return msgspec.Raw(value.model_dump_json(round_trip=True, by_alias=True).encode())
    raise TypeError(f"JSON cannot express a {type(value).__qualname__}")


def read_value(kind: type, value: Any) -> Any:
    """Return a value of a type that msgspec does not support. This is the `dec_hook` of msgspec.

    Raises TypeError for an unsupported type, and ValueError for a value that the model refuses.
    """
    if is_model(kind):
        model: Any = kind
        return model.model_validate_json(msgspec.json.encode(value))
    raise TypeError(f"JSON cannot be read as a {kind.__qualname__}")


def is_model(kind: Any) -> bool:
    """Return True for a pydantic model. A program with such a model has imported pydantic already."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)
