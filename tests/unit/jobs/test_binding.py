"""How a payload becomes the arguments of a handler."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, TypedDict

import msgspec
import pytest

from delayq.core.envelope import encode_data
from delayq.core.errors import ConfigError, InvalidPayload
from delayq.jobs.binding import bind
from delayq.jobs.context import JobContext

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypes


@dataclass
class Address:
    street: str
    number: int = 1


class Line(TypedDict):
    sku: str
    count: int


def read(function: Any, data: bytes) -> dict[str, Any]:
    return bind("close", function).payload.read(msgspec.Raw(data))


def refused(function: Any, data: bytes) -> str:
    with pytest.raises(InvalidPayload) as caught:
        read(function, data)
    return str(caught.value)


# -- what fits -------------------------------------------------------------------------------------------------------


def test_what_json_has_no_form_for_comes_back_by_its_annotation() -> None:
    def named(tags: set[int], raw: bytes, counts: dict[int, str]) -> None: ...

    def bare(tags: Any, raw: Any, counts: Any) -> None: ...

    sent = {"tags": {1}, "raw": b"abc", "counts": {1: "a"}}
    data = bytes(encode_data(sent, 1_000))
    assert read(named, data) == sent
    assert read(bare, data) == {"tags": [1], "raw": "YWJj", "counts": {"1": "a"}}


def test_members_arrive_under_their_names() -> None:
    def close(order_id: int, note: str) -> None: ...

    assert read(close, b'{"note":"n","order_id":42}') == {"order_id": 42, "note": "n"}


def test_defaults_stand_in_for_missing_members() -> None:
    def close(note: str = "none", *, order_id: int, tags: list[str] = []) -> None: ...  # noqa: B006  (shared, as in Python)

    assert read(close, b'{"order_id":1}') == {"order_id": 1, "note": "none", "tags": []}
    assert read(close, b'{"order_id":1,"tags":["a"]}') == {"order_id": 1, "note": "none", "tags": ["a"]}


def test_values_become_what_the_annotations_say() -> None:
    def close(to: Address, lines: list[Line], rate: float, note: str | None, ids: tuple[int, ...]) -> None: ...

    found = read(close, b'{"to":{"street":"s"},"lines":[{"sku":"x","count":2}],"rate":1,"note":null,"ids":[1,2]}')
    assert found == {
        "to": Address("s", 1),
        "lines": [{"sku": "x", "count": 2}],
        "rate": 1.0,
        "note": None,
        "ids": (1, 2),
    }


def test_without_annotations_anything_goes() -> None:
    assert read(lambda a, b: None, b'{"a":{"x":[1,null]},"b":"t"}') == {"a": {"x": [1, None]}, "b": "t"}


def test_no_payload_is_an_empty_one() -> None:
    def close(note: str = "none") -> None: ...

    assert read(close, b"null") == {"note": "none"}
    assert read(lambda: None, b"null") == {}


def test_further_members_go_where_kwargs_are() -> None:
    def close(order_id: int, **rest: Any) -> None: ...

    assert read(close, b'{"order_id":1,"x":2,"y":[3]}') == {"order_id": 1, "x": 2, "y": [3]}


def test_names_that_python_or_msgspec_might_trip_over() -> None:
    def close(self: int, cls: int, json: int, _hidden: int, größe: int) -> None: ...

    data = '{"self":1,"cls":2,"json":3,"_hidden":4,"größe":5}'.encode()
    assert read(close, data) == {"self": 1, "cls": 2, "json": 3, "_hidden": 4, "größe": 5}


@pytest.mark.parametrize("kind", ["plain", "optional", "union", "keyword"])
def test_the_context_comes_from_the_worker_and_never_from_the_payload(kind: str) -> None:
    def plain(context: JobContext, order_id: int) -> None: ...
    def optional(order_id: int, context: Optional[JobContext] = None) -> None: ...  # noqa: UP045  (people write both)
    def union(order_id: int, context: JobContext | None = None) -> None: ...
    def keyword(order_id: int, *, ctx: JobContext, **rest: Any) -> None: ...

    functions: dict[str, Any] = {"plain": plain, "optional": optional, "union": union, "keyword": keyword}
    binding = bind("close", functions[kind])
    assert binding.context == ("ctx" if kind == "keyword" else "context")
    assert binding.payload.read(msgspec.Raw(b'{"order_id":1}')) == {"order_id": 1}


def test_a_partial_and_an_object_that_can_be_called() -> None:
    class Close:
        def __call__(self, order_id: int) -> None: ...

    def close(shop: str, order_id: int) -> None: ...

    assert read(Close(), b'{"order_id":1}') == {"order_id": 1}
    assert read(functools.partial(close, shop="s"), b'{"order_id":1}') == {"order_id": 1, "shop": "s"}


# -- what does not fit -----------------------------------------------------------------------------------------------


def test_a_missing_an_unknown_and_a_wrong_member_are_named() -> None:
    def close(order_id: int) -> None: ...

    assert "`order_id`" in refused(close, b"{}")
    assert "`order`" in refused(close, b'{"order_id":1,"order":2}')
    assert "`int`" in refused(close, b'{"order_id":"1"}')
    assert "'close'" in refused(close, b"{}")


@pytest.mark.parametrize("data", [b"[]", b"1", b'"text"', b"true", b"[" * 100_000 + b"]" * 100_000])
def test_a_payload_that_is_no_object(data: bytes) -> None:
    refused(lambda order_id=1: None, data)


def test_a_payload_that_is_no_object_is_refused_for_kwargs_too() -> None:
    refused(lambda **rest: None, b"[1]")


# -- functions that cannot be handlers -------------------------------------------------------------------------------


def unusable(function: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        bind("close", function)
    return str(caught.value)


def test_parameters_by_position_are_refused_by_name() -> None:
    def only(order_id: int, /) -> None: ...
    def many(*order_ids: int) -> None: ...

    assert "'order_id'" in unusable(only)
    assert "'order_ids'" in unusable(many)


def test_a_generator_is_refused_because_nothing_would_run() -> None:
    def lazy() -> Iterator[int]:
        yield 1

    async def lazy_async() -> AsyncIterator[int]:
        yield 1

    assert "generator" in unusable(lazy)
    assert "generator" in unusable(lazy_async)


def test_an_annotation_that_is_not_there_at_run_time_is_named() -> None:
    def close(price: OnlyForTypes) -> None: ...

    assert "OnlyForTypes" in unusable(close)


def test_a_type_that_json_cannot_fill_is_refused() -> None:
    def close(total: dict[Any, int] | dict[str, str]) -> None: ...

    assert "'close'" in unusable(close)


def test_what_has_no_signature_is_refused() -> None:
    unusable(dict.fromkeys)
    unusable(42)
