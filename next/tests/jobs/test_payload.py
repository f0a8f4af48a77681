"""Fields of a job as JSON: what comes back equal is sent, and all else is refused with its field."""

import enum
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from delayq import InvalidInput, Job, job
from delayq.core.errors import UnknownJob
from delayq.jobs.payload import Field, Payload
from delayq.jobs.registry import Registry

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    since: date


class Item(msgspec.Struct):
    sku: str
    price: Decimal


class Customer(pydantic.BaseModel):
    name: str
    mail: str = pydantic.Field(alias="e-mail")


class Tree(msgspec.Struct):
    kids: "list[Tree]"


class Box(msgspec.Struct, Generic[T]):
    content: T


NOON = datetime(2026, 11, 28, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 42),
        (str, "ünïcode \u2028"),
        (float, 0.1),
        (float, 3),
        (bool, False),
        (Decimal, Decimal("1.10")),
        (UUID, UUID("12345678-1234-5678-1234-567812345678")),
        (datetime, NOON),
        (datetime, NOON.astimezone(UTC)),
        (date, date(2026, 11, 28)),
        (timedelta, timedelta(minutes=15)),
        (Colour, Colour.RED),
        (bytes, b"\0\xff"),
        (Address, Address("High St", date(2026, 1, 1))),
        (list[Item], [Item("a", Decimal("9.99"))]),
        (Customer, Customer.model_validate({"name": "Ann", "e-mail": "ann@example.org"})),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (dict[int, str], {1: "a"}),
        (int | None, None),
        (Any, {"a": [1, None, "x"]}),
        (Tree, Tree([Tree([])])),
        (Box[int], Box(1)),
        (memoryview | None, None),
        (dict[Decimal, Customer | None], {Decimal("1.5"): None}),
        (Sequence[int] | None, [1]),
    ],
)
def test_what_is_sent_comes_back_equal(kind: Any, value: Any) -> None:
    payload = Payload("n", [Field("x", kind)])
    back = payload.read(payload.write({"x": value}))
    assert back == {"x": value}


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (int, "42", "'42', which cannot be sent as int"),
        (int, True, "True, which cannot be sent as int"),
        (float, math.nan, "nan, which JSON cannot express"),
        (Any, NOON, r"the datetime 2026.*, but a worker would read the str '2026-11-28T12:00:00.123456\+01:00'"),
        (datetime, datetime(2026, 11, 28, tzinfo=ZoneInfo("Europe/Berlin")), "in Europe/Berlin, .*astimezone"),
        (Any, datetime(2026, 11, 28, tzinfo=UTC), "would read the str .*Annotate the field"),
        (list[datetime], [datetime(2026, 11, 28, tzinfo=ZoneInfo("Europe/Berlin"))], "a worker would read"),
        (list[int], (1, 2), "a tuple, but a worker would read a list"),
        (Any, object(), "JSON cannot express a object"),
        (dict[str, Any], {"a": math.inf}, r"the value at \['a'\] is inf, which JSON cannot express"),
        (Any, {"a": [{"b": Decimal("1.5")}]}, r"the value at \['a'\]\[0\]\['b'\] is a Decimal, .* read the str '1.5'"),
        (list[Any], [Address("Kay", date(2026, 1, 1))], r"the value at \[0\] is a Address, but .* would read a dict"),
        (float | None, math.nan, "nan, which JSON cannot express"),
    ],
)
def test_what_would_not_come_back_is_refused_with_its_field(kind: Any, value: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=f"[Tt]he field 'x' of 'n'(,| is) .*{told}") as caught:
        Payload("n", [Field("x", kind)]).write({"x": value})
    assert caught.value.hint


def test_a_field_of_another_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no field 'colour'"):
        Payload("n", [Field("order_id", int)]).write({"order_id": 1, "colour": "red"})


class Plain:
    pass


class Order(str):
    pass


@dataclass
class Upload:
    file: Path


@dataclass(eq=False)
class Identity:
    number: int


class Rule(msgspec.Struct):
    rules: "list[Rule]"
    pattern: re.Pattern[str] | None = None


class Parcel(TypedDict):
    size: complex


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Path, "Type 'pathlib.Path' is not supported"),
        (Path | None, "Type 'pathlib.Path' is not supported"),
        (list[Path], "Type 'pathlib.Path' is not supported"),
        (Annotated[Path, "x"], "Type 'pathlib.Path' is not supported"),
        (Upload, "Type 'pathlib.Path' is not supported"),
        (Box[Path], "Type 'pathlib.Path' is not supported"),
        (complex, "Type 'complex' is not supported"),
        (Parcel, "Type 'complex' is not supported"),
        (Rule, "Type 're.Pattern' is not supported"),
        (Plain, r"Type 'tests.jobs.test_payload.Plain' is not supported"),
        (Order, r"Type 'tests.jobs.test_payload.Order' is not supported"),
        (object, "Type 'object' is not supported"),
        (pydantic.HttpUrl, "Type 'pydantic.networks.HttpUrl' is not supported"),
        (Iterable[int], "Type 'collections.abc.Iterable' is not supported"),
        (Callable[[], None], "Type 'collections.abc.Callable' is not supported"),
        (deque[int], "Type 'collections.deque' is not supported"),
        (msgspec.msgpack.Ext, "Type 'msgspec.msgpack.Ext' is not supported"),
        (dict[tuple[int, int], int], "Keys of a dict must be texts"),
        (dict[bool, int], "Keys of a dict must be texts"),
        (Identity, "Type 'tests.jobs.test_payload.Identity' has no __eq__"),
        (dict[tuple[int, int], int] | list[set[object]] | list[int], "Type unions may not contain more than one"),
    ],
)
def test_a_type_that_cannot_be_sent_is_refused_where_it_is_declared(kind: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=f"The field 'x' of the job 'n' cannot be sent as JSON: .*{told}") as caught:
        Payload("n", [Field("x", kind)])
    assert caught.value.hint


def test_a_field_that_cannot_be_sent_is_refused_for_classes_and_functions() -> None:
    with pytest.raises(InvalidInput, match=r"field 'file' of the job 'payload\.read'"):

        class Read(Job, name="payload.read"):
            file: Path = Path()

            def handle(self) -> None: ...

    with pytest.raises(InvalidInput, match=r"field 'file' of the job 'payload\.read'"):

        @job("payload.read", registry=Registry())
        def read(file: Path = Path()) -> None: ...


def test_a_payload_leaves_out_what_has_a_default() -> None:
    payload = Payload("n", [Field("a", int), Field("b", list[int], list)])
    assert payload.read(b'{"a": 1}') == {"a": 1, "b": []}
    assert payload.read(b'{"a": 1}')["b"] is not payload.read(b'{"a": 1}')["b"]


def test_a_member_of_a_newer_release_waits_for_a_newer_worker() -> None:
    payload = Payload("n", [Field("a", int)])
    with pytest.raises(UnknownJob):
        payload.read(b'{"a": 1, "new": 2}')
    with pytest.raises(msgspec.ValidationError):
        payload.read(b'{"a": "x"}')
