"""What happens when a job class is made: its names are checked, then it becomes a dataclass."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints

from delayq.core.errors import ConfigError
from delayq.jobs.options import NAMES

_OVERRIDABLE: Final = ("failed", "middleware", "prepare_for_dispatch")
_GIVEN: Final = ("job_name", "job_options", "_handler", "_abc_impl")
"""What every job class is given of its own."""


def prepare_class(cls: Any, base: type) -> None:
    """Make `cls` a dataclass and refuse reserved names; raises `ConfigError`, with one sentence."""
    _refuse_init(cls, base)
    dataclasses.dataclass(kw_only=True)(cls)
    _refuse_init_vars(cls)
    fields = {field.name for field in dataclasses.fields(cls)}
    written = {name for kind in cls.__mro__ if kind not in base.__mro__ for name in vars(kind)}
    for name in sorted(written | fields):
        if not name.startswith("__"):
            _refuse(cls, base, name, is_field=name in fields)


def _refuse_init(cls: type, base: type) -> None:
    """A worker makes the job from its payload, which holds the fields and nothing that a constructor was given.

    The constructor of a mixin would never be called: that of a dataclass, which every job is, calls no other.
    """
    for kind in cls.__mro__:
        if kind in base.__mro__ or not _writes_init(kind):
            continue
        own = f"{cls.__module__}.{cls.__qualname__}"
        whose = "defines" if kind is cls else f"inherits from {kind.__module__}.{kind.__qualname__}, which defines"
        raise ConfigError(
            f"{own} {whose} __init__, and the payload of a job is made of its fields.",
            hint="Declare what it is made with as fields, such as `number: int`, and leave __init__ out; "
            "work the rest out in __post_init__ or handle.",
        )


def _writes_init(kind: type) -> bool:
    """Whether a class has a constructor that somebody wrote: not one of a dataclass, a protocol or a class in C."""
    if not inspect.isfunction(vars(kind).get("__init__")) or getattr(kind, "_is_protocol", False):
        return False
    made = vars(kind).get("__dataclass_params__")
    return made is None or not made.init


def _refuse_init_vars(cls: Any) -> None:
    """The constructor takes them and keeps them nowhere, so a payload could not hold them."""
    for field in cls.__dataclass_fields__.values():
        if field._field_type is vars(dataclasses)["_FIELD_INITVAR"]:
            own = f"{cls.__module__}.{cls.__qualname__}"
            raise ConfigError(
                f"The field {field.name!r} of {own} is an InitVar, which would not travel.",
                hint="Make it a plain field, or work it out in handle.",
            )


def _refuse(cls: type, base: type, name: str, *, is_field: bool) -> None:
    own = f"{cls.__module__}.{cls.__qualname__}"
    method = name in _OVERRIDABLE and callable(getattr(cls, name, None)) and not is_field
    own_of = inspect.getattr_static  # a class method is another object each time it is asked for
    foreign = not method and name not in _GIVEN and own_of(cls, name, _GIVEN) is not own_of(base, name, None)
    if name in NAMES and (foreign or is_field):
        raise ConfigError(
            f"{own} has a member {name!r}, which is the name of an option.",
            hint=f"Write class {cls.__name__}(Job, {name}=...), or call the field something else.",
        )
    if hasattr(base, name) and (foreign or is_field):
        raise ConfigError(f"{own} has a member {name!r}, which belongs to Job.", hint="Call it something else.")
    if name.startswith("_") and is_field:
        raise ConfigError(f"The field {name!r} of {own} starts with an underscore.", hint="Call it something else.")


def fields_of(cls: Any) -> list[dataclasses.Field[Any]]:
    """The fields that travel: those its constructor takes."""
    return [field for field in dataclasses.fields(cls) if field.init]


def hints_of(cls: type) -> dict[str, Any]:
    """The annotations of a class and its bases; a type variable of a generic base is what the class says it is."""
    if not issubclass(cls, Generic):
        return get_type_hints(cls, include_extras=True)
    known: dict[type, Mapping[Any, Any]] = {cls: {}}
    hints: dict[str, Any] = {}
    for kind in cls.__mro__:  # a class comes before its bases
        for base in vars(kind).get("__orig_bases__", ()):
            origin = get_origin(base)
            if isinstance(origin, type) and origin is not Generic:
                given = [_filled(one, known.get(kind, {})) for one in get_args(base)]
                known.setdefault(origin, dict(zip(getattr(origin, "__parameters__", ()), given, strict=False)))
        own = vars(kind).get("__annotations__", {})
        for name, hint in get_type_hints(kind, include_extras=True).items() if own else ():
            if name in own:
                hints.setdefault(name, _filled(hint, known.get(kind, {})))
    return hints


def _filled(hint: Any, known: Mapping[Any, Any]) -> Any:
    """An annotation with its type variables replaced by those that are known."""
    if isinstance(hint, TypeVar):
        return known.get(hint, hint)
    wanted = getattr(hint, "__parameters__", ()) if get_origin(hint) is not None else ()
    return hint[tuple(known.get(one, one) for one in wanted)] if any(one in known for one in wanted) else hint
