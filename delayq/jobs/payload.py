"""The fields of a job, to JSON and back by their annotations.

What is written comes back equal, or is not sent: a dispatch reads what it wrote and compares, unless every value is a
plain one of exactly the type its field names. So a datetime in a field of type `Any`, a NaN, or text in a number's
field is refused where the mistake is, with the name of the field.

Models are not written: references to them are, and `read` puts the models back that were loaded for the attempt.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec

from delayq.core.envelope import NO_DATA
from delayq.core.errors import ConfigError, InvalidPayload
from delayq.jobs.codecs import Codecs
from delayq.jobs.references.linked import Linked, refuse_hidden
from delayq.jobs.references.loading import Loading, Wanted, current_loading

_PLAIN: Final = (int, str, bool, float)
_UNREADABLE: Final = (msgspec.MsgspecError, RecursionError, UnicodeError, TypeError, ValueError)


class Field(msgspec.Struct, frozen=True):
    """One field. `default` makes its value where a payload leaves it out; None = it must be there."""

    name: str
    kind: Any
    default: Callable[[], Any] | None = None


class Payload:
    """The fields of the job `name`. `open_ended`: further members are fine, as plain JSON.

    Raises `ConfigError` for a field that no JSON can fill.
    """

    def __init__(self, name: str, fields: Sequence[Field], codecs: Codecs, *, open_ended: bool = False) -> None:
        self.name = name
        self.fields = tuple(fields)
        self._codecs = codecs
        self._open_ended = open_ended
        self._plain = {field.name: field.kind for field in fields if field.kind in _PLAIN}
        self._decode_any = msgspec.json.Decoder(dict[str, Any]).decode
        self._encode = msgspec.json.Encoder(enc_hook=codecs.write).encode
        self._learn()

    def _learn(self) -> None:
        """Which fields hold models, and how the rest is read; anew when another kind of models was made known."""
        codecs = self._codecs
        self._known = codecs.known
        links = [Linked(self.name, field.name, field.kind, codecs.models_of) for field in self.fields if codecs.known]
        self._linked = {link.name: link for link in links if link}
        self._kinds = {
            **{field.name: field.kind for field in self.fields},
            **{n: x.shape for n, x in self._linked.items()},
        }
        self._shape = self._make_shape()
        if codecs.known:
            refuse_hidden(self.name, self._shape, codecs.models_of)
        self._decode = msgspec.json.Decoder(self._shape, dec_hook=codecs.read).decode

    @property
    def holds_models(self) -> bool:
        """Whether any of its fields does."""
        self._refresh()
        return bool(self._linked)

    def read(self, data: msgspec.Raw) -> dict[str, Any]:
        """The values of the fields, models among them. Raises `InvalidPayload`, and `ModelMissing`."""
        values = self._values(data)
        return self._with_models(values) if self._linked else values

    def wanted(self, data: msgspec.Raw) -> list[Wanted]:
        """The models that a payload refers to. Raises `InvalidPayload`."""
        return self._wanted(self._values(data))

    def _wanted(self, values: Mapping[str, Any]) -> list[Wanted]:
        return [Wanted(link, ref) for name, link in self._linked.items() for ref in link.refs(values[name])]

    def _values(self, data: msgspec.Raw) -> dict[str, Any]:
        if self._codecs.known != self._known:
            self._learn()
        raw = b"{}" if data == NO_DATA else data
        try:
            arguments = msgspec.structs.asdict(self._decode(raw))
            return {**self._decode_any(raw), **arguments} if self._open_ended else arguments
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise InvalidPayload(f"The payload does not fit the parameters of {self.name!r}: {error}.") from None

    def _with_models(self, values: dict[str, Any]) -> dict[str, Any]:
        """With the models loaded for this attempt; for a payload of another, with some loaded for this once."""
        wanted, current = self._wanted(values), current_loading()
        if current is not None and current.missing(wanted) is None:
            return self._put(values, current)
        with Loading() as loading:
            loading.load(wanted)
            gone = loading.missing(wanted)
            if gone is not None:
                raise gone.error()
            return self._put(values, loading)

    def _put(self, values: dict[str, Any], loading: Loading) -> dict[str, Any]:
        return {
            name: self._linked[name].put(value, loading.model) if name in self._linked else value
            for name, value in values.items()
        }

    def _refresh(self) -> None:
        if self._codecs.known != self._known:
            self._learn()

    def write(self, values: Mapping[str, Any]) -> msgspec.Raw:
        """The JSON of some values. Raises `InvalidPayload`, which names the field, for what would not come back."""
        self._refresh()
        if self._linked:
            links = self._linked
            values = {name: links[name].refer(value) if name in links else value for name, value in values.items()}
        plain = all(_exact(value, self._plain.get(name)) for name, value in values.items())
        try:
            if plain:
                return msgspec.Raw(self._encode(values))
            raw, back = self._there_and_back(values, self._shape)
        except _UNREADABLE as error:
            raise self._blame(values, error) from error
        for name, value in values.items():
            if not _equal(back.get(name, _equal), value):
                raise self._changed(name, value, back.get(name))
        return raw

    def _there_and_back(self, values: Mapping[str, Any], shape: Any) -> tuple[msgspec.Raw, dict[str, Any]]:
        raw = self._encode(values)
        arguments = msgspec.structs.asdict(msgspec.json.Decoder(shape, dec_hook=self._codecs.read).decode(raw))
        back = {**self._decode_any(raw), **arguments} if self._open_ended else arguments
        return msgspec.Raw(raw), back

    def _make_shape(self) -> type[msgspec.Struct]:
        members = [
            (field.name, self._kinds[field.name])
            if field.default is None
            else (field.name, self._kinds[field.name], msgspec.field(default_factory=field.default))
            for field in self.fields
        ]
        return self._shaped(members)

    def _shaped(self, members: Sequence[tuple[Any, ...]]) -> type[msgspec.Struct]:
        try:
            shape = msgspec.defstruct("Payload", members, forbid_unknown_fields=not self._open_ended, kw_only=True)
            msgspec.json.Decoder(shape, dec_hook=self._codecs.read)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"The job {self.name!r} has a parameter that no JSON can fill: {error}.",
                hint="Annotate with plain types, dataclasses, TypedDicts, msgspec Structs or pydantic models.",
            ) from error
        return shape

    def _blame(self, values: Mapping[str, Any], error: Exception) -> InvalidPayload:
        """Which field it was: the first that cannot go alone."""
        kinds = self._kinds
        for name, value in values.items():
            if name not in kinds and not self._open_ended:
                return InvalidPayload(f"The job {self.name!r} has no field {name!r}.")
            try:
                self._there_and_back({name: value}, self._shaped([(name, kinds.get(name, Any))]))
            except _UNREADABLE as why:
                return InvalidPayload(f"The field {name!r} of {self.name!r} cannot be sent: {_sentence(why)}.")
        return InvalidPayload(f"The fields of {self.name!r} cannot be sent: {_sentence(error)}.")

    def _changed(self, name: str, value: Any, back: Any) -> InvalidPayload:
        return InvalidPayload(
            f"The field {name!r} of {self.name!r} would not come back as it is: a {type(value).__name__} is read "
            f"as a {type(back).__name__}.",
            hint="Annotate the field with the type of its value, or give that type an __eq__.",
        )


def same(value: Any) -> Callable[[], Any]:
    """A default as it is; made by a factory, because Python shares defaults and so do we."""
    return partial(_itself, value)


def _itself(value: Any) -> Any:
    return value


def _exact(value: Any, kind: Any) -> bool:
    """A value that needs no second look: a plain one, of exactly the type of its field."""
    return type(value) is kind and (kind is not float or math.isfinite(value))


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other) or _same_instants(one, other)
    except Exception:  # noqa: BLE001  (the __eq__ of a stranger may raise anything; then nobody can say they are equal)
        return False


def _same_instants(one: Any, other: Any) -> bool:
    """Whether two values differ in nothing but how the same instants are written.

    Python calls no two datetimes of different zones equal where the clocks of one are put back or forward.
    """
    if isinstance(one, datetime) and isinstance(other, datetime):
        aware = one.utcoffset() is not None and other.utcoffset() is not None
        return aware and one.astimezone(UTC) == other.astimezone(UTC)
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())
    made: Any = getattr(type(one), "__dataclass_params__", None)
    if made is not None and made.eq:
        return all(_equal(getattr(one, x.name), getattr(other, x.name)) for x in dataclasses.fields(one) if x.compare)
    if isinstance(one, msgspec.Struct) and one.__struct_config__.eq:
        return all(_equal(getattr(one, name), getattr(other, name)) for name in one.__struct_fields__)
    return False


def _sentence(error: Exception) -> str:
    words = str(error).replace(" - at `$", " - at `").rstrip(".")
    return words or type(error).__name__
