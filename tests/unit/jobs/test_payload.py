"""Fields to JSON and back: exactly, or not at all."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import msgspec
import pydantic
import pytest

from delayq.core.errors import ConfigError, InvalidPayload
from delayq.jobs.codecs import Codecs, TypeCodec
from delayq.jobs.payload import Field, Payload, same

CET = timezone(timedelta(hours=1))


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Line:
    sku: str
    price: Decimal
    tags: set[str] = field(default_factory=set)


class Point(msgspec.Struct):
    x: int
    when: datetime


class Address(pydantic.BaseModel):
    street: str
    since: date
    key: uuid.UUID


class Aliased(pydantic.BaseModel):
    order_id: int = pydantic.Field(alias="orderId")
    other: int = pydantic.Field(validation_alias="in", serialization_alias="out")


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: date
    key: uuid.UUID


class Computing(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    width: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.width**2


class Binary(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="strings")
    raw: bytes
    ratio: float = 1.0


class Text(pydantic.BaseModel):
    raw: bytes = b""
    ratio: float = 1.0


class Pair(NamedTuple):
    left: int
    right: str


class Row(TypedDict):
    sku: str
    amount: Decimal


def there_and_back(kind: Any, value: Any, codecs: Codecs | None = None) -> Any:
    payload = Payload("x", [Field("it", kind)], codecs or Codecs())
    return payload.read(payload.write({"it": value}))["it"]


KEY = uuid.uuid4()
EXACT = [
    (int, 2**80),
    (int, -1),
    (str, 'ü "quoted" \0'),
    (bool, True),
    (float, 0.1),
    (float, -0.0),
    (bytes, b"\x00\xff"),
    (datetime, datetime(2026, 11, 21, 15, 0, 0, 123456, tzinfo=CET)),
    (datetime, datetime(2026, 11, 21, 15)),  # noqa: DTZ001  (a wall clock's time stays one)
    (date, date(2026, 2, 28)),
    (time, time(15, 0, 0, 1)),
    (timedelta, timedelta(days=-3, microseconds=7)),
    (uuid.UUID, KEY),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("12345678901234567890.123456789")),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Line, Line("a", Decimal("9.90"), {"x"})),
    (list[Line], [Line("a", Decimal(1)), Line("b", Decimal(2))]),
    (Point, Point(1, datetime(2026, 1, 1, tzinfo=UTC))),
    (Address, Address(street="Elm", since=date(2026, 1, 1), key=KEY)),
    (Address | None, None),
    (dict[str, Address], {"home": Address(street="Elm", since=date(2026, 1, 1), key=KEY)}),
    (dict[int, Decimal], {1: Decimal("0.1")}),
    (tuple[int, str], (1, "a")),
    (frozenset[int], frozenset({1, 2})),
    (list[Aliased], [Aliased.model_validate({"orderId": 1, "in": 2})]),
    (Strict, Strict(at=date(2026, 1, 1), key=KEY)),
    (Computing, Computing(width=3)),
    (Binary, Binary(raw=b"\xff\x00", ratio=float("inf"))),
    (Text, Text(raw=b"text")),
    (Pair, Pair(1, "a")),
    (Row, {"sku": "a", "amount": Decimal("1.0")}),
    (Literal["a", "b"], "b"),
    (Optional[int], None),  # noqa: UP045  (people write both)
    (Annotated[int, msgspec.Meta(ge=1)], 1),
    (Any, {"a": [1, None, "x", 1.5, True]}),
    (dict[str, Any], {"a": {"b": []}}),
]


@pytest.mark.parametrize(("kind", "value"), EXACT, ids=map(str, range(len(EXACT))))
def test_what_is_sent_comes_back_exactly(kind: Any, value: Any) -> None:
    back = there_and_back(kind, value)
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)


REFUSED = [
    (int, "1"),
    (int, True),
    (int, 1.5),
    (str, 1),
    (str, "\ud800"),
    (float, float("nan")),
    (float | None, float("inf")),
    (float, 2**53 + 1),
    (list[int], (1, 2)),
    (list[int], [1, "2"]),
    (Any, datetime(2026, 1, 1, tzinfo=UTC)),
    (Any, {"deep": [Decimal(1)]}),
    (Any, KEY),
    (Any, b"x"),
    (Any, {1: "a"}),
    (Any, float("nan")),
    (Any, Line("a", Decimal(1))),
    (Any, object()),
    (Line, Line("a", "no decimal")),  # type: ignore[arg-type]
    (Address, Address.model_construct(street=1, since="no date", key=None)),
    (Annotated[int, msgspec.Meta(ge=1)], 0),
    (Colour, "red"),
    (int, object()),
]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(("kind", "value"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_what_would_not_come_back_is_refused_by_the_name_of_its_field(kind: Any, value: Any) -> None:
    payload = Payload("order.close", [Field("fine", int), Field("it", kind)], Codecs())
    with pytest.raises(InvalidPayload, match=r"The field 'it' of 'order\.close'"):
        payload.write({"fine": 1, "it": value})


def test_a_subclass_is_not_its_base() -> None:
    @dataclass
    class Special(Line):
        more: int = 1

    with pytest.raises(InvalidPayload, match="a Special is read as a Line"):
        there_and_back(Line, Special("a", Decimal(1)))


def test_no_such_field() -> None:
    with pytest.raises(InvalidPayload, match=r"'x' has no field 'b'"):
        Payload("x", [Field("a", int)], Codecs()).write({"a": 1, "b": 2})


def test_a_field_left_out_has_its_default() -> None:
    payload = Payload("x", [Field("a", int, same(7)), Field("b", list[int], list)], Codecs())
    assert payload.read(msgspec.Raw(b"null")) == {"a": 7, "b": []}
    one, other = payload.read(msgspec.Raw(b"{}")), payload.read(msgspec.Raw(b"{}"))
    assert one["b"] is not other["b"]


def test_a_field_that_no_json_can_fill_is_refused_at_once() -> None:
    class Odd(enum.Enum):
        PAIR = (1, 2)

    with pytest.raises(ConfigError, match="'x' has a parameter that no JSON can fill"):
        Payload("x", [Field("odd", Odd)], Codecs())


class Shade:
    """A type that nobody but the application knows."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shade) and other.name == self.name

    __hash__ = None  # type: ignore[assignment]  # nobody needs it


def read_shade(kind: type, name: str) -> Shade:
    return {"red": Shade("red"), "blue": Shade("blue")}[name]


def with_shades() -> Codecs:
    codecs = Codecs()
    codecs.add(TypeCodec(lambda kind: issubclass(kind, Shade), lambda shade: shade.name, read_shade))
    return codecs


def test_a_codec_of_your_own() -> None:
    payload = Payload("x", [Field("one", Shade), Field("many", list[Shade])], with_shades())
    values = {"one": Shade("red"), "many": [Shade("blue"), Shade("red")]}
    raw = payload.write(values)
    assert bytes(raw) == b'{"one":"red","many":["blue","red"]}'
    assert payload.read(raw) == values


def test_what_a_codec_raises_while_reading_is_the_jobs_error() -> None:
    payload = Payload("x", [Field("one", Shade)], with_shades())
    with pytest.raises(KeyError):
        payload.read(msgspec.Raw(b'{"one":"green"}'))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (Text(raw=b"\xff"), "ser_json_bytes"),
        (Text(ratio=float("inf")), "Text.ratio: Input should be a valid number; JSON has no inf and no nan"),
    ],
)
def test_what_a_model_cannot_say_in_json_is_refused_in_one_line(value: Text, why: str) -> None:
    with pytest.raises(InvalidPayload, match="The field 'it' of 'x' cannot be sent") as refused:
        there_and_back(Text, value)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_model_is_read_by_its_aliases_too() -> None:
    read = Payload("close", [Field("x", Aliased)], Codecs()).read
    assert read(msgspec.Raw(b'{"x":{"orderId":1,"in":2}}')) == read(msgspec.Raw(b'{"x":{"order_id":1,"other":2}}'))
