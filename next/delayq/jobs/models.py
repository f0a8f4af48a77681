"""Models as fields: a job carries the name and key of a model, and the handler gets the model.

    @job("order.close")
    def close(order: Order) -> None: ...          also Order | None, list[Order] and fields of job classes

    close.job(order=order).dispatch()             sends {"order": {"model": "shop.Order", "key": 42}}, without a query

Each attempt loads the models again, inside the call of the handler and before its middleware. SQLAlchemy and Django are
supported; `use_models` adds other libraries.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Protocol, Union, get_args, get_origin
from uuid import UUID

import msgspec

from delayq.core.display import shown
from delayq.core.errors import InvalidInput
from delayq.core.models import ModelRef

Wanted = Sequence[tuple[type, ModelRef]]
"""The models to load: for each one, the class of the field and the reference that the job carries."""


class Models(Protocol):
    """The models of a library. Give an object with these methods to `use_models`.

    For async handlers, add a method `aload`. It is the same as `load`, but returns an async context manager. If a key
    can have several spellings, add `standard_key(kind, key)`, which returns the key in the form of the database.
    """

    def name_of(self, kind: type) -> str | None:
        """Return the name of a class, such as "shop.Order", or None for a class that is not a model of this library.

        Raises InvalidInput for a model that cannot be sent, such as one whose key has several columns.
        """
        ...

    def key_of(self, model: Any) -> int | str | UUID:
        """Return the primary key of a model, without a query. Raises InvalidInput for a model that is not saved."""
        ...

    def load(self, wanted: Wanted) -> AbstractContextManager[Sequence[Any]]:
        """Return a context manager that gives the models in the order of `wanted`, with None for a missing model.

        The handler runs inside the context manager, so the context manager can keep a session open.
        """
        ...


class ModelField(msgspec.Struct, frozen=True):
    """A field whose value is a model.

    `kind`: the class of the model. `model`: the name of this class. `wire`: the type of the JSON that the job carries.
    """

    kind: type
    model: str
    wire: Any
    is_optional: bool
    is_list: bool

    def refs(self, value: Any) -> Any:
        """Return the references for the value of this field; raises InvalidInput."""
        if value is None and self.is_optional:
            return None
        if not self.is_list:
            return self._ref(value)
        if not isinstance(value, list):
            raise InvalidInput(f"It is {shown(value)}, not a list of {self.model}.", hint="Send a list.")
        return [self._ref(one) for one in value]

    def _ref(self, value: Any) -> ModelRef:
        if isinstance(value, ModelRef):
            return self._checked(value)
        if not isinstance(value, self.kind):
            raise InvalidInput(
                f"{shown(value)} is not a model {self.model}.",
                hint=f'Send an object of this class, or ModelRef("{self.model}", key).',
            )
        return _ref_of(value, models_of(self.kind), self.model)

    def _checked(self, ref: ModelRef) -> ModelRef:
        if ref.model != self.model:
            raise InvalidInput(
                f"The ModelRef names the model {shown(ref.model)}, and not {self.model}.",
                hint=f'Send an object of {self.model}, or ModelRef("{self.model}", key).',
            )
        key = _standard_key(models_of(self.kind), self.kind, ref.key)
        return msgspec.structs.replace(ref, key=str(key) if isinstance(key, UUID) else key)


def model_field(name: str, annotation: Any, *, job_name: str) -> ModelField | None:
    """Return the field of an annotation such as Order, Order | None or list[Order]; None = not a model.

    Raises InvalidInput for a model that cannot be sent.
    """
    inner, is_optional = _without_none(annotation)
    is_list = get_origin(inner) is list
    kind = get_args(inner)[0] if is_list else inner
    try:
        model = next((model for models in _in_use() if (model := _name_of(models, kind))), None)
    except InvalidInput as error:
        raise _named(error, name, job_name) from None
    if model is None:
        return None
    wire: Any = list[ModelRef] if is_list else ModelRef
    return ModelField(kind, model, wire | None if is_optional else wire, is_optional, is_list)


def refs_of(fields: Mapping[str, ModelField], values: Mapping[str, Any], *, job_name: str) -> dict[str, Any]:
    """Return the values with references in place of models; raises InvalidInput, which names the field."""
    replaced = dict(values)
    for name in fields.keys() & values.keys():
        try:
            replaced[name] = fields[name].refs(values[name])
        except InvalidInput as error:
            raise _named(error, name, job_name) from None
    return replaced


def check_models(fields: Mapping[str, ModelField], job: Mapping[str, Any]) -> None:
    """Raise msgspec.ValidationError if a reference in a payload names another model than its field declares."""
    for name, field in fields.items():
        for ref in refs_in(job[name]):
            if ref.model != field.model:
                raise msgspec.ValidationError(f"Expected the model {field.model}, got {ref.model} - at `$.{name}`")


def refs_in(value: Any) -> list[ModelRef]:
    """Return the references to models in the value of a field: the value itself, or the items of a list."""
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ModelRef)]


def refs_by_type(data: Any, fields: Mapping[str, ModelField], *, job_name: str) -> Any:
    """Return the payload of a dispatch by name, with references in place of models at its top level.

    `fields`: the fields with models, if this program declares the job.
    """
    if not isinstance(data, dict) or not _in_use():
        return data
    replaced = refs_of(fields, data, job_name=job_name)
    for name in data.keys() - fields.keys():
        try:
            replaced[name] = plain_refs(data[name])
        except InvalidInput as error:
            raise _named(error, name, job_name) from None
    return replaced


def plain_refs(value: Any) -> Any:
    """Return a value with references in place of a model, or of the models in a list. Raises InvalidInput."""
    if isinstance(value, list):
        return [plain_refs(one) if not isinstance(one, list) else one for one in value]
    for models in _in_use():
        if model := models.name_of(type(value)):
            return _ref_of(value, models, model)
    return value


def models_of(kind: type) -> Models:
    """Return the Models object of the library of a model class."""
    return next(models for models in _in_use() if models.name_of(kind) is not None)


def is_model(kind: Any) -> bool:
    """Return True if `kind` is a model class."""
    return any(_name_of(models, kind) is not None for models in _in_use())


def use_models(models: Models) -> None:
    """Register the models of another library as fields of jobs, or the sessions that load SQLAlchemy models.

    Call this function in the module that declares the jobs. For another library, call it before the declarations.
    Django needs no call. Raises InvalidInput for an object without the methods of Models.

        use_models(SQLAlchemyModels(sessionmaker(engine)))
    """
    for method in ("name_of", "key_of", "load"):
        if isinstance(models, type) or not callable(getattr(models, method, None)):
            raise InvalidInput(
                f"use_models was given {shown(models)}, which has no method `{method}`.",
                hint="Give an object with the methods of Models, such as SQLAlchemyModels(sessionmaker(engine)).",
                field="models",
            )
    _used.insert(0, models)


_used: Final[list[Models]] = []
_built_in: Final[dict[str, Models]] = {}


def _in_use() -> list[Models]:
    """Return the known libraries, the latest first. SQLAlchemy and Django are known if the program imports them."""
    if "sqlalchemy.orm" in sys.modules and "sqlalchemy" not in _built_in:
        from delayq.contrib.sqlalchemy import SQLAlchemyModels

        _built_in["sqlalchemy"] = SQLAlchemyModels()
    if "django.db.models" in sys.modules and "django" not in _built_in:
        from delayq.contrib.django import DjangoModels

        _built_in["django"] = DjangoModels()
    return [*_used, *_built_in.values()]


def _name_of(models: Models, kind: Any) -> str | None:
    return models.name_of(kind) if isinstance(kind, type) else None


def _ref_of(value: Any, models: Models, model: str) -> ModelRef:
    key = _standard_key(models, type(value), models.key_of(value))
    database_of = getattr(models, "database_of", None)
    database = "" if database_of is None else database_of(value)
    if isinstance(key, UUID):
        return ModelRef(model, str(key), database)
    if not isinstance(key, int | str) or isinstance(key, bool):
        raise InvalidInput(
            f"The key of {model} is {shown(key)}.", hint="Keys can be int, str or UUID. Send the key in a plain field."
        )
    return ModelRef(model, key, database)


def _standard_key(models: Models, kind: type, key: Any) -> Any:
    """Return a key in the form of the database, if the library supports this. For an int, "077" becomes 77."""
    standard_key = getattr(models, "standard_key", None)
    if standard_key is None or isinstance(key, bool) or not isinstance(key, int | str | UUID):
        return key
    return standard_key(kind, key)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """Return an annotation without Annotated and None, and True if None was part of it."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) not in (Union, UnionType):
        return annotation, False
    parts = [part for part in get_args(annotation) if part is not NoneType]
    is_optional = len(parts) < len(get_args(annotation))
    return (_without_none(parts[0])[0] if len(parts) == 1 else annotation), is_optional


def _named(error: InvalidInput, name: str, job_name: str) -> InvalidInput:
    return InvalidInput(
        f"The field {name!r} of the job {job_name!r} cannot be sent: {error.message}", hint=error.hint, field="data"
    )
