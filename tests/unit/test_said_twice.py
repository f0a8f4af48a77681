"""A member said twice is found in any JSON, and nothing else is taken for one."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as some

from delayq.http.once import looked_through, said_twice

SHORT = some.text(max_size=4) | some.sampled_from(['"', "\\", '\\"', "a:", "{"])
LEAVES = some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | SHORT
VALUES = some.recursive(
    LEAVES, lambda inner: some.lists(inner, max_size=4) | some.dictionaries(SHORT, inner, max_size=4), max_leaves=12
)


@settings(max_examples=60, deadline=None)
@given(VALUES, some.booleans())
def test_what_is_said_once(value: Any, escaped: bool) -> None:
    assert said_twice(json.dumps(value, ensure_ascii=escaped).replace("Infinity", "1e999").encode()) == ""


@settings(max_examples=60, deadline=None)
@given(some.dictionaries(SHORT, VALUES, min_size=1, max_size=4), VALUES, some.data(), some.booleans())
def test_what_is_said_twice(value: dict[str, Any], again: Any, data: Any, escaped: bool) -> None:
    name = data.draw(some.sampled_from(sorted(value)))
    body = json.dumps({**value, "inner": [value]}, ensure_ascii=escaped)
    twice = f"{body[:-1]}, {json.dumps(name)}: {json.dumps(again)}}}".replace("Infinity", "1e999")
    assert said_twice(twice.encode()) == f"#/{name}"


def test_the_place_is_told() -> None:
    assert said_twice(b'[1, {"a": [{"b": {}}, {"c/d": 1, "c/d": "\\u00e9"}]}]') == "#/1/a/1/c/d"


def test_whether_every_value_was_read() -> None:
    assert looked_through(b'{"a": [1, "\\u00e9"]}') == ("", True)
    assert looked_through(b'{"a": 1e999}') == ("", False)
    assert looked_through(b'{"a": 1, "a": 2}') == ("#/a", True)
