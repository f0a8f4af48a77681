"""How a payload becomes the arguments of a function: worked out once, when the function is registered."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from delayq.core.envelope import NO_DATA
from delayq.core.errors import ConfigError, InvalidPayload
from delayq.jobs.context import JobContext

Read = Callable[[msgspec.Raw], dict[str, Any]]

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


class Binding(NamedTuple):
    """Which parameter takes the context ('' = none), and how a payload becomes the other arguments."""

    context: str
    read: Read


def bind(name: str, function: Callable[..., Any]) -> Binding:
    """The binding of the handler of the job `name`.

    Raises `ConfigError` for a function that cannot be called with the members of a payload as keywords.
    """
    _refuse_generators(name, function)
    signature, hints = _look_at(name, function)
    context, open_ended = "", False
    fields: list[tuple[Any, ...]] = []
    for parameter in signature.parameters.values():
        kind = hints.get(parameter.name, Any)
        if parameter.kind in _POSITIONAL:
            raise ConfigError(
                f"The job {name!r} takes {parameter.name!r} by position; payload members arrive by name.",
                hint="Use plain or keyword-only parameters.",
            )
        if _is_context(kind):
            context = parameter.name
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            open_ended = True
        elif parameter.default is inspect.Parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, msgspec.field(default_factory=partial(_same, parameter.default))))
    return Binding(context, _reader(name, fields, open_ended))


def _refuse_generators(name: str, function: Callable[..., Any]) -> None:
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
        return signature, get_type_hints(annotated)
    except NameError as error:
        raise ConfigError(
            f"The job {name!r} has an annotation that cannot be found: {error}.",
            hint="It is read at run time: import its type at the top of the module, not under TYPE_CHECKING.",
        ) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"The parameters of the job {name!r} cannot be read: {error}.") from error


def _is_context(kind: Any) -> bool:
    if get_origin(kind) in (Union, types.UnionType):
        return JobContext in get_args(kind)
    return kind is JobContext


def _same(value: Any) -> Any:
    """A default as the function has it; made by a factory, because Python shares defaults and so do we."""
    return value


def _reader(name: str, fields: list[tuple[Any, ...]], open_ended: bool) -> Read:
    required_first = sorted(fields, key=len)
    try:
        shape = msgspec.defstruct("Payload", required_first, forbid_unknown_fields=not open_ended, kw_only=True)
        decode = msgspec.json.Decoder(shape).decode
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"The job {name!r} has a parameter that no JSON can fill: {error}.",
            hint="Annotate with plain types, dataclasses, TypedDicts or msgspec Structs; or leave it out and convert.",
        ) from error
    decode_any = msgspec.json.Decoder(dict[str, Any]).decode

    def read(data: msgspec.Raw) -> dict[str, Any]:
        raw = b"{}" if data == NO_DATA else data
        try:
            arguments = msgspec.structs.asdict(decode(raw))
            return {**decode_any(raw), **arguments} if open_ended else arguments
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise InvalidPayload(f"The payload does not fit the parameters of {name!r}: {error}.") from None

    return read
