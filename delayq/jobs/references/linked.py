"""Fields that hold models: by their annotation, from models to references and back.

A model may stand in a field, in a list, tuple, set or dict there, and be optional. Deeper inside, in a dataclass of
yours say, it would have to be loaded by whoever reads that; so it is refused there.
"""

from __future__ import annotations

import functools
import operator
import types
from collections import abc
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec

from delayq.core.errors import ConfigError, InvalidPayload
from delayq.jobs.references.models import Models
from delayq.jobs.references.reference import Ref, Reference

Kinds = Callable[[type], Models | None]
"""Whose models a class is, or None."""


class Linked:
    """One field that holds models. `shape` is its annotation with references in their places."""

    def __init__(self, job: str, name: str, annotation: Any, kinds: Kinds) -> None:
        self.job = job
        self.name = name
        self.reference = next((one for one in _marks(annotation) if isinstance(one, Reference)), Reference())
        self._accepted: dict[type, Models] = {}
        self._kinds = kinds
        self.shape = self._swapped(annotation)

    def __bool__(self) -> bool:
        """Whether it holds models at all."""
        return bool(self._accepted)

    # -- writing -----------------------------------------------------------------------------------------------------

    def refer(self, value: Any) -> Any:
        """The value with references instead of its models. Raises `InvalidPayload` for one that is not saved."""
        return _mapped(value, self._is_model, self._ref)

    def _is_model(self, value: Any) -> bool:
        return self._kinds(type(value)) is not None

    def _ref(self, model: Any) -> Ref:
        kind = type(model)
        models = self._kinds(kind)
        name = None if models is None else models.name_of(kind)
        if models is None or name is None or not isinstance(model, tuple(self._accepted)):
            raise InvalidPayload(f"The field {self.name!r} of {self.job!r} takes {self._words()}, not {kind.__name__}.")
        key = models.key_of(model)
        if key is None:
            raise InvalidPayload(
                f"The field {self.name!r} of {self.job!r} holds a {kind.__name__} that is not saved, so no worker "
                "could load it.",
                hint="Save it (flush it, with SQLAlchemy) before the dispatch.",
            )
        return Ref(name, msgspec.json.decode(msgspec.json.encode(key)))

    # -- reading -----------------------------------------------------------------------------------------------------

    def refs(self, value: Any) -> Iterator[Ref]:
        """The references in a value as it was read."""
        found: list[Ref] = []
        _mapped(value, _is_ref, found.append)
        return iter(found)

    def place(self, ref: Ref) -> tuple[Models, type]:
        """Whose model a reference means, and its class. Raises `InvalidPayload` for one that does not belong here."""
        for accepted, models in self._accepted.items():
            kind = models.kind_of(ref.model)
            if kind is not None and (issubclass(kind, accepted) or issubclass(accepted, kind)):
                return models, kind
        raise InvalidPayload(
            f"The field {self.name!r} of {self.job!r} holds the model {ref.model!r}, not {self._words()}."
        )

    def put(self, value: Any, found: Callable[[Linked, Ref], Any]) -> Any:
        """The value with models instead of its references."""
        return _mapped(value, _is_ref, lambda ref: self._fitting(ref, found(self, ref)))

    def _fitting(self, ref: Ref, model: Any) -> Any:
        if not isinstance(model, tuple(self._accepted)):
            what = type(model).__name__
            raise InvalidPayload(f"The field {self.name!r} of {self.job!r}: {ref} is a {what}, not {self._words()}.")
        return model

    def _words(self) -> str:
        return " or ".join(kind.__name__ for kind in self._accepted)

    # -- the annotation ----------------------------------------------------------------------------------------------

    def _swapped(self, annotation: Any) -> Any:
        if isinstance(annotation, type) and not get_args(annotation):
            models = self._kinds(annotation)
            if models is None:
                return annotation
            self._accepted[annotation] = models
            return Ref
        origin, args = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            marks = tuple(mark for mark in annotation.__metadata__ if not isinstance(mark, Reference))
            inner = self._swapped(args[0])
            return Annotated[(inner, *marks)] if marks else inner
        if origin not in _CONTAINERS:
            return annotation
        inside = [self._swapped(arg) for arg in args]
        if all(one is other for one, other in zip(inside, args, strict=True)):
            return annotation
        if origin in (Union, types.UnionType):
            return functools.reduce(operator.or_, inside)
        return origin[tuple(inside)]


_CONTAINERS: Final = (
    Union, types.UnionType, list, tuple, set, frozenset, dict,
    abc.Collection, abc.Sequence, abc.MutableSequence, abc.Set, abc.MutableSet, abc.Mapping, abc.MutableMapping,
)  # fmt: skip


def refuse_hidden(job: str, shape: type, kinds: Kinds) -> None:
    """Raises `ConfigError` for a model deeper inside a payload than it may stand."""
    for kind in _classes(msgspec.inspect.type_info(shape), set()):
        if kinds(kind) is not None:
            raise ConfigError(
                f"The job {job!r} has a field with a {kind.__name__} inside of something else.",
                hint="Make it a field of the job itself, or put its key there.",
            )


def _marks(annotation: Any) -> Iterator[Any]:
    yield from getattr(annotation, "__metadata__", ())
    for arg in get_args(annotation):
        if not isinstance(arg, Reference):
            yield from _marks(arg)


def _mapped(value: Any, chosen: Callable[[Any], bool], change: Callable[[Any], Any]) -> Any:
    """The value with what is chosen changed, in plain containers too. One without any is returned as it is."""
    if chosen(value):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(one, chosen, change) for key, one in value.items()}
    if isinstance(value, list | set | frozenset) or type(value) is tuple:
        inside = [_mapped(one, chosen, change) for one in value]
        # An ORM has lists of its own, which would be made of models again.
        kind = next(base for base in (list, set, frozenset, tuple) if isinstance(value, base))
        return value if all(map(operator.is_, inside, value)) else kind(inside)
    return value


def _is_ref(value: Any) -> bool:
    return type(value) is Ref


def _classes(info: Any, seen: set[int]) -> Iterator[type]:
    """All classes in what msgspec knows of a type."""
    if id(info) in seen:
        return
    seen.add(id(info))
    kind = getattr(info, "cls", None)
    if isinstance(kind, type):
        yield kind
    names = getattr(info, "__struct_fields__", ())
    for one in (getattr(info, name) for name in names):
        parts = one.values() if isinstance(one, Mapping) else one if isinstance(one, tuple | list) else (one,)
        for part in parts:
            if isinstance(part, msgspec.inspect.Type | msgspec.inspect.Field):
                yield from _classes(part, seen)
