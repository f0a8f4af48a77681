"""Unique keys: which text a key becomes, and what frees it."""

from typing import Any

import pytest

from delayq.core.errors import InvalidInput
from delayq.core.unique import Unique, digest_of, is_window, lock_of, to_free_at_start, to_take, to_take_again

DATA = b'{"order_id": 42, "note": "a"}'

DIGESTS = {
    "@shared": "f5d578a09428ba401a0d5381973d8d8a",
    "@fields": "f198c6cbb044a92241b4af599977fe0d",
    "@window": "8d5da20d1bae7ad424bc062dfa8ac55e",
    "@whole": "e4b2b4e09114fc0c2366355e7ae5cf94",
    "@function": "9d36e557077dc90bfbbcbbb5f9b072cc",
}
"""Made by the first edition."""


@pytest.mark.parametrize(
    ("unique", "lock"),
    [
        ("invoice:42", "@shared"),
        (Unique(key=["order_id"]), "@fields"),
        (Unique(key=["order_id"], until="start"), "@fields.start"),
        (Unique(key=["order_id"], until="window", window="1h"), "@window.3600000"),
        (Unique(), "@whole"),
        (Unique(key=lambda data: str(data["order_id"])), "@function"),
        (Unique(key="42"), "@function"),
    ],
)
def test_the_lock_is_the_same_as_in_the_first_edition(unique: str | Unique, lock: str) -> None:
    name, _, rest = lock.partition(".")
    assert lock_of(unique, "order.close", DATA) == DIGESTS[name] + (f".{rest}" if rest else "")


def test_a_key_of_members_belongs_to_one_job_name_and_a_text_to_all() -> None:
    fields = Unique(key=["order_id"])
    assert lock_of(fields, "a", DATA) != lock_of(fields, "b", DATA)
    assert lock_of(fields, "a", DATA) == lock_of(fields, "a", b'{"note": "b", "order_id": 42}')
    assert lock_of("key", "a", DATA) == lock_of("key", "b", b"{}")
    assert lock_of(Unique(), "a", b'{"a": 1, "b": 2}') == lock_of(Unique(), "a", b'{"b": 2, "a": 1}')


@pytest.mark.parametrize(
    ("lock", "taken", "again", "at_start", "window"),
    [
        ("d", "d", "d", "", False),
        ("d.start", "d", "", "d", False),
        ("d.60000", "d.60000", "", "", True),
        (None, "", "", "", False),
    ],
)
def test_what_is_taken_and_freed(lock: str | None, taken: str, again: str, at_start: str, window: bool) -> None:
    assert (to_take(lock), to_take_again(lock), to_free_at_start(lock)) == (taken, again, at_start)
    assert is_window(taken) == window
    assert digest_of(taken) == taken[:1]


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"key": ""}, r"key is ''"),
        ({"key": [""]}, r"key has '', which is not a name"),
        ({"key": ["a", 5]}, r"key has 5, which is not a name"),
        ({"until": "end"}, r"until is 'end'"),
        ({"until": "window"}, r"until is 'window' and window is None\. Give both"),
        ({"window": "1h"}, r"until is 'done' and window is '1h'"),
        ({"until": "window", "window": "0s"}, r"window is '0s'"),
        ({"until": "window", "window": "soon"}, r"'soon' is not a duration"),
    ],
)
def test_a_unique_key_that_cannot_be(members: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Unique(**members)


@pytest.mark.parametrize(
    ("unique", "sentence"),
    [
        (
            Unique(key=["nobody"]),
            r"key of the job 'order\.close' names the member 'nobody', but the payload does not have this member",
        ),
        (Unique(key=lambda data: ""), r"function \S*<lambda> of the unique key of the job 'order\.close' returned ''"),
        (
            Unique(key=lambda data: data["nobody"]),
            r"function \S*<lambda> of the unique key of the job 'order\.close' raised KeyError: 'nobody'",
        ),
        ("", r"unique is ''"),
        (42, r"unique is 42"),
    ],
)
def test_a_key_that_the_payload_does_not_give(unique: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        lock_of(unique, "order.close", DATA)


def test_the_error_of_a_key_function_is_the_cause() -> None:
    with pytest.raises(InvalidInput) as refused:
        lock_of(Unique(key=lambda data: data["nobody"]), "order.close", DATA)
    assert isinstance(refused.value.__cause__, KeyError)
    assert (refused.value.field, bool(refused.value.hint)) == ("unique", True)
