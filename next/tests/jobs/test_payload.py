"""Fields of a job as JSON: what comes back equal is sent, and all else is refused with its field."""

import enum
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from delayq import InvalidInput
from delayq.core.errors import UnknownJob
from delayq.jobs.payload import Field, Payload


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
        (Any, NOON, r"the datetime 2026.*, and a worker would read the str '2026-11-28T12:00:00.123456\+01:00'"),
        (datetime, datetime(2026, 11, 28, tzinfo=ZoneInfo("Europe/Berlin")), "in Europe/Berlin, .*astimezone"),
        (Any, datetime(2026, 11, 28, tzinfo=UTC), "would read the str .*Annotate the field"),
        (list[datetime], [datetime(2026, 11, 28, tzinfo=ZoneInfo("Europe/Berlin"))], "a worker would read"),
        (list[int], (1, 2), "a tuple, and a worker would read a list"),
        (Any, object(), "JSON cannot express a object"),
        (dict[str, Any], {"a": math.inf}, r"at \['a'\] inf, which JSON cannot express"),
        (Any, {"a": [{"b": Decimal("1.5")}]}, r"at \['a'\]\[0\]\['b'\] a Decimal, .* read the str '1.5'"),
        (list[Any], [Address("Kay", date(2026, 1, 1))], r"at \[0\] a Address, and a worker would read a dict"),
        (float | None, math.nan, "nan, which JSON cannot express"),
    ],
)
def test_what_would_not_come_back_is_refused_with_its_field(kind: Any, value: Any, told: str) -> None:
    with pytest.raises(InvalidInput, match=f"The field 'x' of 'n' is .*{told}") as caught:
        Payload("n", [Field("x", kind)]).write({"x": value})
    assert caught.value.hint


def test_a_field_of_another_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no field 'colour'"):
        Payload("n", [Field("order_id", int)]).write({"order_id": 1, "colour": "red"})


def test_a_type_that_json_cannot_fill_is_refused_where_it_is_declared() -> None:
    with pytest.raises(InvalidInput, match="cannot be read from JSON"):
        Payload("n", [Field("x", dict[tuple[int, int], int] | list[set[object]] | list[int])])


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
