"""Conversion of the fields of a job to JSON and back, by their annotations.

A dispatch decodes its own JSON again, and raises InvalidInput if a value differs from the original. So a worker always
gets equal values. This check is skipped for a value of a plain type, such as int, if the field has exactly this type.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from delayq.core.display import shown
from delayq.core.errors import InvalidInput, UnknownJob
from delayq.jobs.codecs import read_value, write_value
from delayq.jobs.equality import comes_back_as, first_difference
from delayq.jobs.field_types import check_sendable
from delayq.jobs.models import ModelField, model_field, refs_of

_PLAIN: Final = (int, str, bool, float)
_UNWRITABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeError, TypeError, ValueError)


class Field(msgspec.Struct, frozen=True):
    """One field. `default` returns the value for a payload without this field; None = the field is required."""

    name: str
    kind: Any
    default: Callable[[], Any] | None = None


class Payload:
    """The fields of one job. Raises InvalidInput for a field whose type cannot be sent as JSON.

    `model_fields`: the fields whose values are models, by name. In the JSON, and in payloads that `read` returns,
    references replace the models.
    """

    def __init__(self, job_name: str, fields: Sequence[Field]) -> None:
        self._job_name = job_name
        self.model_fields: Mapping[str, ModelField] = {
            field.name: found
            for field in fields
            if (found := model_field(field.name, field.kind, job_name=job_name)) is not None
        }
        if self.model_fields:
            fields = [self._as_sent(field) for field in fields]
        self._kinds = {field.name: field.kind for field in fields}
        self._shape = self._make_shape(fields)
        self._decode = msgspec.json.Decoder(self._shape, dec_hook=read_value).decode
        self._encode = msgspec.json.Encoder(enc_hook=write_value).encode

    @property
    def kinds(self) -> Mapping[str, Any]:
        """The types of the fields by name."""
        return self._kinds

    def read(self, data: bytes | msgspec.Raw) -> dict[str, Any]:
        """Return the values of the fields from the JSON of a payload.

        Raises UnknownJob for an unknown field, because a newer release of the application may know this field. Raises
        msgspec.ValidationError for a payload that does not fit the fields.
        """
        try:
            return msgspec.structs.asdict(self._decode(b"{}" if bytes(data) == b"null" else data))
        except msgspec.ValidationError as error:
            if "unknown field" in str(error):
                raise UnknownJob(
                    f"This worker cannot read the job {self._job_name!r}: {error}.",
                    hint="A worker with the release that sent the job can read the job.",
                ) from None
            raise

    def write(self, values: Mapping[str, Any]) -> msgspec.Raw:
        """Return the JSON of the values.

        Raises InvalidInput, which names the first field that cannot be sent, or that a worker would read as another
        value.
        """
        if self.model_fields:
            values = refs_of(self.model_fields, values, job_name=self._job_name)
        try:
            raw = msgspec.Raw(self._encode(values))
            if all(_is_plain(value, self._kinds.get(name)) for name, value in values.items()):
                return raw
            back = msgspec.structs.asdict(self._decode(raw))
        except _UNWRITABLE as error:
            raise self._unwritable(values, error) from None
        for name, value in values.items():
            if not comes_back_as(value, back[name]):
                raise self._changed(name, *first_difference(value, back[name]))
        return raw

    def _as_sent(self, field: Field) -> Field:
        found = self.model_fields.get(field.name)
        return field if found is None else Field(field.name, found.wire, field.default)

    def _make_shape(self, fields: Sequence[Field]) -> type[msgspec.Struct]:
        members = [
            (field.name, field.kind)
            if field.default is None
            else (field.name, field.kind, msgspec.field(default_factory=field.default))
            for field in fields
        ]
        for field in fields:
            try:
                check_sendable(field.kind)
            except (TypeError, ValueError, NameError) as error:
                raise InvalidInput(
                    f"The field {field.name!r} of the job {self._job_name!r} cannot be sent as JSON: {error}.",
                    hint="Use plain types, Any, dataclasses, TypedDicts, msgspec Structs or pydantic models. Convert "
                    "other values in the program and in the handler, for example a Path to str.",
                    field="data",
                ) from None
        return msgspec.defstruct("Payload", members, kw_only=True, forbid_unknown_fields=True)

    def _unwritable(self, values: Mapping[str, Any], error: Exception) -> InvalidInput:
        """Return the error for the first field that cannot be written and read on its own."""
        for name, value in values.items():
            if name not in self._kinds:
                known = ", ".join(self._kinds) or "none"
                return InvalidInput(
                    f"The job {self._job_name!r} has no field {name!r}.", hint=f"Its fields are {known}.", field="data"
                )
            try:
                alone = Payload(self._job_name, [Field(name, self._kinds[name])])
                alone._decode(self._encode({name: value}))
            except _UNWRITABLE as why:
                return self._refused(name, value, why)
        return InvalidInput(f"The payload of {self._job_name!r} cannot be sent: {error}.", field="data")

    def _refused(self, name: str, value: Any, why: Exception) -> InvalidInput:
        if _is_no_number(value):
            return self._no_number(name, "", value)
        return InvalidInput(
            f"The field {name!r} of {self._job_name!r} is {shown(value)}, which cannot be sent as "
            f"{_kind_name(self._kinds[name])}: {_sentence(why)}.",
            hint="Send a value of the annotated type, or annotate the field with the type of the value.",
            field="data",
        )

    def _changed(self, name: str, place: str, value: Any, back: Any) -> InvalidInput:
        """Return the error for a part of a field, at `place` in it, that a worker would read as another value."""
        if _is_no_number(value):
            return self._no_number(name, place, value)
        return InvalidInput(
            f"{_part(name, self._job_name, place)} is {_described(value)}, but a worker would read {_described(back)}.",
            hint=_hint_for(value, back),
            field="data",
        )

    def _no_number(self, name: str, place: str, value: float) -> InvalidInput:
        return InvalidInput(
            f"{_part(name, self._job_name, place)} is {value}, which JSON cannot express.",
            hint="Send None or a text.",
            field="data",
        )


def _is_no_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _part(field: str, job_name: str, place: str) -> str:
    """Return the name of a part of a field, as the start of a message. `place`: the position in the field, or ''."""
    field = f"he field {field!r} of {job_name!r}"
    return f"In t{field}, the value at {place}" if place else f"T{field}"


def _described(value: Any) -> str:
    if isinstance(value, datetime):
        zone = f" in {value.tzinfo}" if value.tzinfo else ""
        return f"the datetime {value}{zone}"
    is_short = isinstance(value, str | int | float)
    return f"the {type(value).__name__} {shown(value)}" if is_short else f"a {type(value).__name__}"


def _is_plain(value: Any, kind: Any) -> bool:
    """Return True for a value of a plain type that is exactly the type of its field. JSON keeps such values equal."""
    return type(value) is kind and kind in _PLAIN and (kind is not float or math.isfinite(value))


def _hint_for(value: Any, back: Any) -> str:
    has_other_zone = getattr(value, "tzinfo", None) is not None and type(back) is type(value)
    if has_other_zone:
        return (
            "JSON keeps the offset of a time, but not its time zone. Send value.astimezone(timezone.utc), and the name "
            "of the time zone in another field."
        )
    return "Annotate the field with the type of its value, or define __eq__ for this type."


def _kind_name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)


def _sentence(error: Exception) -> str:
    return str(error).replace(" - at `$", " - at `").rstrip(".") or type(error).__name__
