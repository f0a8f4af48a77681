"""Refuses types of fields that cannot be sent.

msgspec accepts every class as the type of a field, because `read_value` might know the class. This check refuses
unknown classes when a job is declared. Without it, every dispatch of the job would be refused later.
"""

from typing import Any, Final, get_origin

import msgspec
from msgspec import inspect

from delayq.jobs import models
from delayq.jobs.codecs import is_model, read_value

_AS_KEYS: Final = (
    *(inspect.AnyType, inspect.StrType, inspect.BytesType, inspect.IntType, inspect.FloatType, inspect.DecimalType),
    *(inspect.DateTimeType, inspect.DateType, inspect.TimeType, inspect.TimeDeltaType, inspect.UUIDType),
    *(inspect.EnumType, inspect.LiteralType, inspect.UnionType),
)


def check_sendable(kind: Any) -> None:
    """Raise an error if the values of a type, or of a type inside it, cannot be sent as JSON and read back as equal.

    Raises TypeError, ValueError, and NameError for an annotation that cannot be resolved.
    """
    msgspec.json.Decoder(kind, dec_hook=read_value)
    pending: list[Any] = [inspect.type_info(kind)]
    seen: set[int] = set()
    for part in pending:  # the loop appends to this list
        if isinstance(part, tuple):
            pending.extend(part)
        elif isinstance(part, inspect.Type | inspect.Field) and id(part) not in seen:
            seen.add(id(part))
            if fault := _fault_of(part):
                raise TypeError(fault)
            pending.extend(getattr(part, name) for name in part.__struct_fields__)


def _fault_of(part: Any) -> str:
    """Return why a type cannot be sent, or ''. The types inside this type are not checked."""
    if isinstance(part, inspect.CustomType | inspect.DataclassType) and models.is_model(part.cls):
        return (
            f"{_name_of(part.cls)!r} is a model, and a field can only be a model, a model or None, or a list of models"
        )
    if isinstance(part, inspect.CustomType) and not is_model(part.cls):
        return f"Type {_name_of(part.cls)!r} is not supported"
    if isinstance(part, inspect.ExtType):
        return "Type 'msgspec.msgpack.Ext' is not supported"
    if isinstance(part, inspect.DictType) and not isinstance(part.key_type, _AS_KEYS):
        return "Keys of a dict must be texts, numbers, times, UUIDs, enums or bytes"
    if isinstance(part, inspect.DataclassType | inspect.StructType) and not _compares_fields(part.cls):
        return f"Type {_name_of(part.cls)!r} has no __eq__, so it is unknown whether a worker reads an equal value"
    return ""


def _compares_fields(kind: Any) -> bool:
    kind = get_origin(kind) or kind
    if issubclass(kind, msgspec.Struct):
        return bool(kind.__struct_config__.eq) or kind.__eq__ is not msgspec.Struct.__eq__
    return kind.__eq__ is not object.__eq__


def _name_of(kind: Any) -> str:
    if not isinstance(kind, type):
        return str(kind)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
