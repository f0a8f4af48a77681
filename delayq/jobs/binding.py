"""How a payload becomes the arguments of a function: worked out once, when the function is registered."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from delayq.core.errors import ConfigError
from delayq.jobs.codecs import Codecs
from delayq.jobs.context import JobContext
from delayq.jobs.payload import Field, Payload, same

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


class Binding(NamedTuple):
    """Which parameter takes the context ('' = none), and how the other arguments travel."""

    context: str
    payload: Payload


def bind(name: str, function: Callable[..., Any], codecs: Codecs | None = None) -> Binding:
    """The binding of the handler of the job `name`.

    Raises `ConfigError` for a function that cannot be called with the members of a payload as keywords.
    """
    refuse_generators(name, function)
    signature, hints = _look_at(name, function)
    context, open_ended = "", False
    fields: list[Field] = []
    for parameter in signature.parameters.values():
        kind = hints.get(parameter.name, Any)
        if parameter.kind in _POSITIONAL:
            raise ConfigError(
                f"The job {name!r} takes {parameter.name!r} by position; payload members arrive by name.",
                hint="Use plain or keyword-only parameters.",
            )
        if is_context(kind):
            context = parameter.name
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            open_ended = True
        elif parameter.default is inspect.Parameter.empty:
            fields.append(Field(parameter.name, kind))
        else:
            fields.append(Field(parameter.name, kind, same(parameter.default)))
    return Binding(context, Payload(name, fields, codecs or Codecs(), open_ended=open_ended))


def refuse_generators(name: str, function: Callable[..., Any]) -> None:
    """Raises `ConfigError` for a function of which a call would run nothing."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(
            f"The job {name!r} is a generator: calling it would run none of its code.",
            hint="Remove the yield, or loop over it inside a plain function.",
        )


def _look_at(name: str, function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    try:
        signature = inspect.signature(function)
        # A partial, or an object with __call__, has no annotations of its own.
        annotated = function if inspect.isroutine(function) else getattr(function, "func", type(function).__call__)
        return signature, get_type_hints(annotated, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"The job {name!r} has an annotation that cannot be found: {error}.",
            hint="It is read at run time: import its type at the top of the module, not under TYPE_CHECKING.",
        ) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"The parameters of the job {name!r} cannot be read: {error}.") from error


def is_context(kind: Any) -> bool:
    """Whether a parameter of that annotation takes the context."""
    if get_origin(kind) in (Union, types.UnionType):
        return JobContext in get_args(kind)
    return kind is JobContext
