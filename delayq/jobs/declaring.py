"""What happens when a job class is made: its names are checked, then it becomes a dataclass."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from delayq.core.errors import ConfigError
from delayq.jobs.options import NAMES

_OVERRIDABLE: Final = ("failed", "middleware", "prepare_for_dispatch")
_GIVEN: Final = ("job_name", "job_options", "_handler", "_abc_impl")
"""What every job class is given of its own."""


def prepare_class(cls: Any, base: type) -> None:
    """Make `cls` a dataclass and refuse reserved names; raises `ConfigError`, with one sentence."""
    dataclasses.dataclass(kw_only=True)(cls)
    fields = {field.name for field in dataclasses.fields(cls)}
    written = {name for kind in cls.__mro__ if not issubclass(base, kind) for name in vars(kind)}
    for name in sorted(written | fields):
        if not name.startswith("__"):
            _refuse(cls, base, name, is_field=name in fields)


def _refuse(cls: type, base: type, name: str, *, is_field: bool) -> None:
    own = f"{cls.__module__}.{cls.__qualname__}"
    method = name in _OVERRIDABLE and callable(getattr(cls, name, None)) and not is_field
    foreign = not method and name not in _GIVEN and getattr(cls, name, _GIVEN) is not getattr(base, name, None)
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
